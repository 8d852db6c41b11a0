#include "gateway/mapping/moderation.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/base/status.h"

namespace baton::gateway {
namespace {

constexpr float kFlagged = 0.5f;
constexpr const char* kCategories[] = {"harassment",
                                       "harassment/threatening",
                                       "hate",
                                       "hate/threatening",
                                       "illicit",
                                       "illicit/violent",
                                       "self-harm",
                                       "self-harm/instructions",
                                       "self-harm/intent",
                                       "sexual",
                                       "sexual/minors",
                                       "violence",
                                       "violence/graphic"};

absl::StatusOr<std::string> ClassifierOf(JsonObject& body) {
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  const std::string name = model.value_or("");
  return name.starts_with("omni-moderation") || name.starts_with("text-moderation") ? "" : name;
}

Json ResultJson(const v1::ModerationResult& result) {
  Json flags = Json::object(), scores = Json::object(), inputs = Json::object();
  const auto add = [&](const std::string& name, float score) {
    flags[name] = result.flagged() && score >= kFlagged;
    scores[name] = score;
    inputs[name] = Json::array({"text"});
  };
  for (const char* const name : kCategories) add(name, 0);
  for (const v1::ModerationCategory& category : result.categories()) add(category.name(), category.score());
  return {{"flagged", result.flagged()},
          {"categories", std::move(flags)},
          {"category_scores", std::move(scores)},
          {"category_applied_input_types", std::move(inputs)}};
}

// Parts of one text.
absl::StatusOr<std::string> Joined(const Json& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject part, JsonObject::Of(parts[i], fmt::format("input[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto type, part.Text("type"));
    if (type != "text") return part.Wrong("type", "only texts are judged here");
    BATON_ASSIGN_OR_RETURN(const auto piece, part.Text("text"));
    if (!piece.has_value()) return part.Wrong("text", "absent");
    text += *piece;
  }
  return text;
}

absl::StatusOr<std::optional<v1::Moderation::Policy>> PolicyIn(JsonObject& policy, std::string_view name) {
  const Json* const side = policy.Find(name);  // null: absent
  if (side == nullptr) return std::nullopt;
  BATON_ASSIGN_OR_RETURN(JsonObject fields, policy.Inside(*side, policy.Path(name)));
  BATON_ASSIGN_OR_RETURN(const auto mode, fields.Text("mode"));
  if (mode == "block") return v1::Moderation::POLICY_BLOCK;
  if (mode == "score") return v1::Moderation::POLICY_SCORE;
  return fields.Wrong("mode", "neither \"block\" nor \"score\"");
}

}  // namespace

absl::StatusOr<v1::ModerateRequest> ReadModerations(const Json& json, std::vector<std::string>* ignored) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::ModerateRequest request;
  BATON_ASSIGN_OR_RETURN(*request.mutable_model(), ClassifierOf(body));
  const Json* const input = body.Find("input");  // null: absent
  if (ignored != nullptr) *ignored = body.Ignored();
  if (input == nullptr) return body.Wrong("input", "absent");
  if (input->is_string()) {
    request.add_texts(input->get<std::string>());
    return request;
  }
  if (!input->is_array() || input->empty()) return body.Wrong("input", "neither a text nor a list of texts");
  if (input->front().is_object()) {
    BATON_ASSIGN_OR_RETURN(*request.add_texts(), Joined(*input));
    return request;
  }
  for (const Json& text : *input) {
    if (!text.is_string()) return body.Wrong("input", "neither a text nor a list of texts");
    request.add_texts(text.get<std::string>());
  }
  return request;
}

Json ModerationsJson(const v1::ModerateResponse& answer, const std::string& id) {
  Json results = Json::array();
  for (const v1::ModerationResult& result : answer.results()) results.push_back(ResultJson(result));
  return {{"id", id}, {"model", answer.model()}, {"results", std::move(results)}};
}

absl::Status ReadModeration(JsonObject& body, v1::RequestOptions* options) {
  const Json* const moderation = body.Find("moderation");  // null: absent
  if (moderation == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject wanted, body.Inside(*moderation, "moderation"));
  v1::Moderation& made = *options->mutable_moderation();
  BATON_ASSIGN_OR_RETURN(*made.mutable_model(), ClassifierOf(wanted));
  made.set_policy(v1::Moderation::POLICY_SCORE);
  const Json* const policy = wanted.Find("policy");  // null: absent
  if (policy == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject sides, wanted.Inside(*policy, "moderation.policy"));
  BATON_ASSIGN_OR_RETURN(const auto input, PolicyIn(sides, "input"));
  BATON_ASSIGN_OR_RETURN(const auto output, PolicyIn(sides, "output"));
  if (input.has_value() && input != output.value_or(v1::Moderation::POLICY_SCORE)) {
    return sides.Wrong("input", "served here with the mode that the output has");
  }
  made.set_policy(output.value_or(v1::Moderation::POLICY_SCORE));
  made.set_input(input.has_value());
  return absl::OkStatus();
}

Json ModerationJson(const v1::Finished& finished) {
  if (!finished.has_moderation()) return nullptr;
  const v1::ModerationResult& result = finished.moderation();
  Json found;
  // A window that was found harmful is, whatever became of the verdicts on others.
  if (result.unavailable() && !result.flagged()) {
    found = {{"type", "error"}, {"code", "unavailable"}, {"message", "the classifier did not answer"}};
  } else {
    Json one = ResultJson(result);
    one["type"] = "moderation_result";
    found = {{"type", "moderation_results"}, {"results", Json::array({std::move(one)})}};
  }
  return {{"input", result.input() ? found : Json(nullptr)},
          {"output", result.input() ? Json(nullptr) : found}};
}

void AddModeration(const v1::Finished& finished, Json* shown) {
  if (Json moderation = ModerationJson(finished); !moderation.is_null()) {
    (*shown)["moderation"] = std::move(moderation);
  }
}

}  // namespace baton::gateway
