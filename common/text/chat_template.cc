#include "common/text/chat_template.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "common/text/gguf_text.h"
#include "common/text/model_file.h"
#include "common/text/rust_call.h"

namespace baton::text {
namespace {

using Json = ChatTemplate::Json;

// Bounds the recursion of everything that walks a request's JSON, on both sides of the C border.
constexpr int kMaxDepth = 100;

bool DeeperThan(const Json& value, int limit) {
  if (!value.is_structured()) return false;
  if (limit == 0) return true;
  for (const Json& item : value) {
    if (DeeperThan(item, limit - 1)) return true;
  }
  return false;
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string content, ReadModelFile(path));
  absl::StatusOr<Json> json = json::Parse<Json>(content);
  if (!json.ok()) return InFile(path, json.status());
  if (!json->is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  return json;
}

// The names of special tokens ("bos_token": "<s>", or an object with "content") that a config file states.
Json SpecialTokens(const Json& config) {
  Json tokens = Json::object();
  for (const auto& [name, value] : config.items()) {
    if (!absl::EndsWith(name, "_token")) continue;
    if (value.is_string()) {
      tokens[name] = value;
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[name] = value["content"];
    }
  }
  return tokens;
}

// chat_template in tokenizer_config.json: a string, or a list of named ones, of which "default" is meant.
absl::StatusOr<std::string> TemplateOf(const Json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no chat_template, and no chat_template.jinja beside it"));
  }
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const Json& named : *found) {
      if (named.is_object() && named.value("name", Json()) == "default" &&
          named.value("template", Json()).is_string()) {
        return named["template"].get<std::string>();
      }
    }
    return absl::InvalidArgumentError(absl::StrCat(path, ": chat_template has no entry named \"default\""));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": chat_template is neither a string nor a list"));
}

// What transformers does to messages before a template sees them.
Json NormalizedMessage(const Json& message) {
  constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};
  Json normalized = Json::object();
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null()) normalized[name] = value;
  }
  for (const std::string_view name : kReasoning) {
    const auto found = normalized.find(std::string(name));
    if (found == normalized.end()) continue;
    const Json reasoning = *found;
    normalized["reasoning_content"] = reasoning;
    if (!normalized.contains("thinking")) normalized["thinking"] = reasoning;
    break;
  }
  return normalized;
}

}  // namespace

struct ChatTemplate::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { CallRust(baton_template_free, handle); }

  baton_template* handle = nullptr;
  Json defaults;  // variables that a caller may override
  std::string digest;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Load(const std::string& folder) {
  if (gguf::IsGguf(folder)) {
    BATON_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(folder));
    BATON_ASSIGN_OR_RETURN(const GgufTemplate found, TemplateOfGguf(file.document));
    auto loaded = FromSource(found.source, found.special_tokens);
    if (!loaded.ok()) return InFile(folder, loaded.status());
    return loaded;
  }
  const std::string jinja_path = absl::StrCat(folder, "/chat_template.jinja");
  const std::string config_path = absl::StrCat(folder, "/tokenizer_config.json");
  const std::string map_path = absl::StrCat(folder, "/special_tokens_map.json");

  auto source = ReadModelFile(jinja_path);
  if (!source.ok() && !absl::IsNotFound(source.status())) return source.status();
  std::string path = jinja_path;

  auto config = ReadJson(config_path);
  if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
  if (!source.ok()) {
    if (!config.ok()) {
      return absl::NotFoundError(
          absl::StrCat(folder, ": no chat_template.jinja and no tokenizer_config.json"));
    }
    path = config_path;
    source = TemplateOf(*config, path);
    if (!source.ok()) return source.status();
  }

  // Older folders state the special tokens in a file of their own; the config wins.
  auto map = ReadJson(map_path);
  if (!map.ok() && !absl::IsNotFound(map.status())) return map.status();
  Json tokens = map.ok() ? SpecialTokens(*map) : Json::object();
  if (config.ok()) tokens.update(SpecialTokens(*config));

  auto loaded = FromSource(*source, tokens);
  if (!loaded.ok()) return InFile(path, loaded.status());
  return loaded;
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::FromSource(const std::string& source,
                                                                             const Json& special_tokens) {
  auto impl = std::make_unique<Impl>();
  baton_text_bytes error;
  if (int32_t code = CallRust(baton_template_new, Data(source), source.size(), &impl->handle, &error);
      code != BATON_TEXT_OK) {
    return TakeError(code, error);
  }
  impl->defaults = special_tokens.is_object() ? SpecialTokens(special_tokens) : Json::object();
  impl->digest = Sha256Of(source);
  impl->defaults["tools"] = nullptr;
  impl->defaults["documents"] = nullptr;
  impl->defaults["add_generation_prompt"] = false;
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

const std::string& ChatTemplate::digest() const { return impl_->digest; }

absl::StatusOr<std::string> ChatTemplate::Render(const Json& variables, absl::Time now,
                                                 size_t max_bytes) const {
  if (!variables.is_object() || !variables.contains("messages") || !variables["messages"].is_array()) {
    return absl::InvalidArgumentError("messages: a chat needs a list of messages");
  }
  if (DeeperThan(variables, kMaxDepth)) {
    return absl::InvalidArgumentError(absl::StrCat("messages: nested deeper than ", kMaxDepth, " levels"));
  }
  Json all = variables;
  for (const auto& [name, value] : impl_->defaults.items()) {
    if (!variables.contains(name)) json::Append(&all, name, value);
  }
  for (Json& message : all["messages"]) {
    if (!message.is_object()) return absl::InvalidArgumentError("messages: every message is an object");
    message = NormalizedMessage(message);
  }
  std::string json;
  try {
    json = all.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("messages: text is not UTF-8: ", error.what()));
  }
  baton_text_bytes text;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_template_render, impl_->handle, Data(json), json.size(),
                                absl::ToUnixSeconds(now), max_bytes, &text, &error);
  if (code != BATON_TEXT_OK) {
    return InFile("chat template", TakeError(code, error));
  }
  return Take(text);
}

}  // namespace baton::text
