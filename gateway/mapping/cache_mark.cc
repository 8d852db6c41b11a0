#include "gateway/mapping/cache_mark.h"

#include "common/base/status.h"

namespace baton::gateway {

absl::StatusOr<std::optional<v1::CacheMark>> ReadMark(JsonObject& block) {
  const Json* const control = block.Find("cache_control");  // null: absent
  if (control == nullptr) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(JsonObject fields, block.Inside(*control, block.Path("cache_control")));
  BATON_ASSIGN_OR_RETURN(const auto type, fields.Text("type"));
  if (type != "ephemeral") return fields.Wrong("type", "not \"ephemeral\"");
  BATON_ASSIGN_OR_RETURN(const auto ttl, fields.Text("ttl"));
  v1::CacheMark mark;
  if (ttl == "1h") {
    mark.set_ttl(v1::CACHE_TTL_1H);
  } else if (ttl.has_value() && ttl != "5m") {
    return fields.Wrong("ttl", "neither \"5m\" nor \"1h\"");
  } else {
    mark.set_ttl(v1::CACHE_TTL_5M);
  }
  return mark;
}

absl::StatusOr<bool> ReadReusable(JsonObject& block) {
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> reusable, block.Flag("reusable"));
  return reusable.value_or(false);
}

void AddText(const std::string& text, const std::optional<v1::CacheMark>& mark, v1::Message* message,
             bool reusable) {
  if (message->parts().empty() && !mark.has_value() && !reusable) {
    message->mutable_content()->append(text);
    return;
  }
  if (!message->content().empty()) {
    message->add_parts()->set_text(message->content());
    message->clear_content();
  }
  v1::ContentPart& part = *message->add_parts();
  part.set_text(text);
  part.set_reusable(reusable);
  if (mark.has_value()) *part.mutable_cache() = *mark;
}

std::string StandIn(std::string_view type) {
  return fmt::format("[{}: left out, this model reads text alone]", type.empty() ? "part" : type);
}

}  // namespace baton::gateway
