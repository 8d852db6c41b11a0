#include "gateway/mapping/openai_request.h"

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/status.h"

namespace baton::gateway {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

void ToValue(const Json& json, google::protobuf::Value* value) {
  switch (json.type()) {
    case Json::value_t::object:
      value->mutable_struct_value();
      for (const auto& [name, member] : json.items()) {
        ToValue(member, &(*value->mutable_struct_value()->mutable_fields())[name]);
      }
      break;
    case Json::value_t::array:
      value->mutable_list_value();
      for (const Json& member : json) ToValue(member, value->mutable_list_value()->add_values());
      break;
    case Json::value_t::string:
      value->set_string_value(json.get<std::string>());
      break;
    case Json::value_t::boolean:
      value->set_bool_value(json.get<bool>());
      break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      value->set_number_value(json.get<double>());
      break;
    default:
      value->set_null_value(google::protobuf::NULL_VALUE);
  }
}

constexpr const char* kNoTokens = "not a list of token ids";

// False: it is not a list of ids.
bool ReadTokens(const Json& list, google::protobuf::RepeatedField<int32_t>* ids) {
  if (!list.is_array()) return false;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokens) return false;
    ids->Add(id.get<int32_t>());
  }
  return true;
}

// A text, or a list of {"type": "text", "text"}.
absl::StatusOr<std::string> Content(JsonObject& message, std::string_view name) {
  const Json* const content = message.Find(name);  // null: absent
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return message.Wrong(name, "neither a text nor a list of parts");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject part,
                           JsonObject::Of((*content)[i], fmt::format("{}[{}]", message.Path(name), i)));
    BATON_ASSIGN_OR_RETURN(const auto type, part.Text("type"));
    const bool refusal = type == "refusal";
    if (type != "text" && !refusal) {
      return part.Wrong("type", fmt::format("\"{}\" is not served here; send parts of the type \"text\"",
                                            type.value_or("")));
    }
    BATON_ASSIGN_OR_RETURN(const auto piece, part.Text(refusal ? "refusal" : "text"));
    if (!piece.has_value()) return part.Wrong("text", "absent");
    text += *piece;
  }
  return text;
}

absl::Status ReadCalls(JsonObject& message, v1::Message* made) {
  BATON_ASSIGN_OR_RETURN(const Json* const calls, message.List("tool_calls"));
  if (calls == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < calls->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject call,
                           JsonObject::Of((*calls)[i], fmt::format("{}[{}]", message.Path("tool_calls"), i)));
    const Json* const function = call.Find("function");  // null: absent
    if (function == nullptr) return call.Wrong("function", "absent");
    BATON_ASSIGN_OR_RETURN(JsonObject named, JsonObject::Of(*function, call.Path("function")));
    BATON_ASSIGN_OR_RETURN(const auto id, call.Text("id"));
    BATON_ASSIGN_OR_RETURN(const auto name, named.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto arguments, named.Text("arguments"));
    v1::ToolCall& added = *made->add_tool_calls();
    added.set_id(id.value_or(""));
    added.set_name(name.value_or(""));
    added.set_arguments_json(arguments.value_or(""));
  }
  return absl::OkStatus();
}

absl::Status ReadMessages(JsonObject& body, v1::Conversation* conversation) {
  BATON_ASSIGN_OR_RETURN(const Json* const messages, body.List("messages"));
  if (messages == nullptr) return body.Wrong("messages", "absent");
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject message,
                           JsonObject::Of((*messages)[i], fmt::format("messages[{}]", i)));
    v1::Message& made = *conversation->add_messages();
    BATON_ASSIGN_OR_RETURN(const auto role, message.Text("role"));
    // What newer models call the system prompt.
    made.set_role(role == "developer" ? "system" : role.value_or(""));
    if (message.Find("function_call") != nullptr) {
      return message.Wrong("function_call", "not served here; send tool_calls");
    }
    if (message.Find("audio") != nullptr) return message.Wrong("audio", "not served here");
    BATON_ASSIGN_OR_RETURN(*made.mutable_content(), Content(message, "content"));
    BATON_ASSIGN_OR_RETURN(auto thinking, message.Text("reasoning_content"));
    if (!thinking.has_value()) {
      BATON_ASSIGN_OR_RETURN(thinking, message.Text("reasoning"));
    }
    made.set_reasoning_content(thinking.value_or(""));
    BATON_RETURN_IF_ERROR(ReadCalls(message, &made));
    BATON_ASSIGN_OR_RETURN(const auto call, message.Text("tool_call_id"));
    made.set_tool_call_id(call.value_or(""));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(JsonObject& body, v1::Conversation* conversation) {
  if (body.Find("functions") != nullptr) return body.Wrong("functions", "not served here; send tools");
  if (body.Find("function_call") != nullptr) {
    return body.Wrong("function_call", "not served here; send tool_choice");
  }
  BATON_ASSIGN_OR_RETURN(const Json* const tools, body.List("tools"));
  if (tools == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool, JsonObject::Of((*tools)[i], fmt::format("tools[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
    const Json* const function = tool.Find("function");  // null: absent
    if (type != "function" || function == nullptr) {
      return tool.Wrong("type", "only tools of the type \"function\" are served here");
    }
    BATON_ASSIGN_OR_RETURN(JsonObject named, JsonObject::Of(*function, tool.Path("function")));
    v1::Tool& made = *conversation->add_tools();
    BATON_ASSIGN_OR_RETURN(const auto name, named.Text("name"));
    BATON_ASSIGN_OR_RETURN(const auto description, named.Text("description"));
    BATON_ASSIGN_OR_RETURN(const auto strict, named.Flag("strict"));
    made.set_name(name.value_or(""));
    made.set_description(description.value_or(""));
    made.set_strict(strict.value_or(false));
    if (const Json* const parameters = named.Find("parameters"); parameters != nullptr) {  // null: absent
      made.set_parameters_json(parameters->dump());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FunctionName(const Json& value, const std::string& where) {
  BATON_ASSIGN_OR_RETURN(JsonObject choice, JsonObject::Of(value, where));
  const Json* const function = choice.Find("function");  // null: absent
  if (function == nullptr) return choice.Wrong("function", "absent");
  BATON_ASSIGN_OR_RETURN(JsonObject named, JsonObject::Of(*function, choice.Path("function")));
  BATON_ASSIGN_OR_RETURN(const auto name, named.Text("name"));
  if (!name.has_value()) return named.Wrong("name", "absent");
  return *name;
}

absl::StatusOr<v1::ToolChoice::Mode> ModeOf(const JsonObject& body, const std::string& word) {
  if (word == "auto") return v1::ToolChoice::MODE_AUTO;
  if (word == "none") return v1::ToolChoice::MODE_NONE;
  if (word == "required") return v1::ToolChoice::MODE_REQUIRED;
  return body.Wrong("tool_choice", fmt::format("\"{}\" is not one of auto, none and required", word));
}

absl::Status ReadToolChoice(JsonObject& body, v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto parallel, body.Flag("parallel_tool_calls"));
  const Json* const choice = body.Find("tool_choice");  // null: absent
  // Without tools there is nothing to choose, and clients send these all the same.
  if (request->conversation().tools().empty()) {
    if (choice != nullptr && *choice != "auto" && *choice != "none") {
      return body.Wrong("tool_choice", "there are no tools");
    }
    return absl::OkStatus();
  }
  if (parallel.has_value()) request->mutable_tool_choice()->set_parallel(*parallel);
  if (choice == nullptr) return absl::OkStatus();
  if (choice->is_string()) {
    BATON_ASSIGN_OR_RETURN(const auto mode, ModeOf(body, choice->get<std::string>()));
    request->mutable_tool_choice()->set_mode(mode);
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(JsonObject object, JsonObject::Of(*choice, "tool_choice"));
  BATON_ASSIGN_OR_RETURN(const auto type, object.Text("type"));
  if (type == "function") {
    BATON_ASSIGN_OR_RETURN(const std::string name, FunctionName(*choice, "tool_choice"));
    request->mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
    request->mutable_tool_choice()->add_names(name);
    return absl::OkStatus();
  }
  if (type != "allowed_tools") return object.Wrong("type", "neither \"function\" nor \"allowed_tools\"");
  const Json* const allowed = object.Find("allowed_tools");  // null: absent
  if (allowed == nullptr) return object.Wrong("allowed_tools", "absent");
  BATON_ASSIGN_OR_RETURN(JsonObject subset, JsonObject::Of(*allowed, "tool_choice.allowed_tools"));
  BATON_ASSIGN_OR_RETURN(const auto word, subset.Text("mode"));
  BATON_ASSIGN_OR_RETURN(const auto mode, ModeOf(body, word.value_or("auto")));
  request->mutable_tool_choice()->set_mode(mode);
  BATON_ASSIGN_OR_RETURN(const Json* const tools, subset.List("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(const std::string name,
                           FunctionName((*tools)[i], fmt::format("tool_choice.allowed_tools.tools[{}]", i)));
    request->mutable_tool_choice()->add_names(name);
  }
  return absl::OkStatus();
}

absl::Status Once(const JsonObject& body, std::string_view name, v1::Constraint* constraint) {
  if (constraint->kind_case() == v1::Constraint::KIND_NOT_SET) return absl::OkStatus();
  return body.Wrong(name, "the answer is constrained by another field too");
}

// vLLM's `structured_outputs`, and its older fields that begin with "guided_".
absl::Status ReadGuides(JsonObject& fields, const std::string& prefix, v1::Constraint* constraint) {
  if (const Json* const schema = fields.Find(prefix + "json"); schema != nullptr) {  // null: absent
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "json", constraint));
    constraint->set_json_schema(schema->is_string() ? schema->get<std::string>() : schema->dump());
  }
  BATON_ASSIGN_OR_RETURN(const auto regex, fields.Text(prefix + "regex"));
  if (regex.has_value()) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "regex", constraint));
    constraint->set_regex(*regex);
  }
  BATON_ASSIGN_OR_RETURN(const auto grammar, fields.Text(prefix + "grammar"));
  if (grammar.has_value()) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "grammar", constraint));
    constraint->set_lark(*grammar);
  }
  BATON_ASSIGN_OR_RETURN(const auto any, fields.Flag(prefix + "json_object"));
  if (any.value_or(false)) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "json_object", constraint));
    constraint->set_json_object(true);
  }
  BATON_ASSIGN_OR_RETURN(const Json* const choices, fields.List(prefix + "choice"));
  if (choices == nullptr) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(Once(fields, prefix + "choice", constraint));
  constraint->mutable_choices();
  for (const Json& choice : *choices) {
    if (!choice.is_string()) return fields.Wrong(prefix + "choice", "not a list of texts");
    constraint->mutable_choices()->add_values(choice.get<std::string>());
  }
  return absl::OkStatus();
}

// Of both APIs; the constraint stays unset if none is asked for.
absl::Status ReadConstraint(JsonObject& body, v1::Constraint* constraint) {
  if (const Json* const format = body.Find("response_format"); format != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject wanted, JsonObject::Of(*format, "response_format"));
    BATON_ASSIGN_OR_RETURN(const auto type, wanted.Text("type"));
    if (type == "json_object") {
      constraint->set_json_object(true);
    } else if (type == "json_schema") {
      const Json* const named = wanted.Find("json_schema");  // null: absent
      if (named == nullptr) return wanted.Wrong("json_schema", "absent");
      BATON_ASSIGN_OR_RETURN(JsonObject object, JsonObject::Of(*named, "response_format.json_schema"));
      const Json* const schema = object.Find("schema");  // null: absent
      if (schema == nullptr) return object.Wrong("schema", "absent");
      constraint->set_json_schema(schema->dump());
    } else if (type != "text") {
      return wanted.Wrong("type", "not one of text, json_object and json_schema");
    }
  }
  if (const Json* const guides = body.Find("structured_outputs"); guides != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*guides, "structured_outputs"));
    BATON_RETURN_IF_ERROR(ReadGuides(fields, "", constraint));
    if (!fields.Ignored().empty()) {
      return absl::InvalidArgumentError(fmt::format("{}: not served here", fields.Ignored().front()));
    }
  }
  return ReadGuides(body, "guided_", constraint);
}

template <typename T, typename Set>
absl::Status Copy(absl::StatusOr<std::optional<T>> value, Set set) {
  BATON_RETURN_IF_ERROR(value.status());
  if (value->has_value()) set(**value);
  return absl::OkStatus();
}

absl::Status ReadSampling(JsonObject& body, v1::SamplingParams* sampling) {
  const auto number = [&body](std::string_view name, auto set) {
    return Copy<double>(body.Number(name), set);
  };
  BATON_RETURN_IF_ERROR(
      number("temperature", [&](double x) { sampling->set_temperature(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(number("top_p", [&](double x) { sampling->set_top_p(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(number("min_p", [&](double x) { sampling->set_min_p(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(
      number("presence_penalty", [&](double x) { sampling->set_presence_penalty(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(
      number("frequency_penalty", [&](double x) { sampling->set_frequency_penalty(static_cast<float>(x)); }));
  BATON_RETURN_IF_ERROR(number("repetition_penalty",
                               [&](double x) { sampling->set_repetition_penalty(static_cast<float>(x)); }));
  // -1 is vLLM's "all".
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("top_k", -1, kMaxTokens), [&](int64_t k) {
    sampling->set_top_k(static_cast<int32_t>(std::max<int64_t>(0, k)));
  }));
  BATON_RETURN_IF_ERROR(Copy<int64_t>(
      body.Whole("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()),
      [&](int64_t seed) { sampling->set_seed(static_cast<uint64_t>(seed)); }));
  const Json* const bias = body.Find("logit_bias");  // null: absent
  if (bias == nullptr) return absl::OkStatus();
  if (!bias->is_object()) return body.Wrong("logit_bias", "not a JSON object");
  for (const auto& [token, value] : bias->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(token, &id) || !value.is_number()) {
      return body.Wrong("logit_bias", "not a map from token ids to numbers");
    }
    (*sampling->mutable_logit_bias())[id] = value.get<float>();
  }
  return absl::OkStatus();
}

absl::Status ReadStop(JsonObject& body, v1::StopConditions* stop) {
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole(name, 0, kMaxTokens),
                                        [&](int64_t n) { stop->set_max_tokens(static_cast<uint32_t>(n)); }));
  }
  if (const Json* const texts = body.Find("stop"); texts != nullptr) {  // null: absent
    if (texts->is_string()) {
      stop->add_stop(texts->get<std::string>());
    } else if (!texts->is_array()) {
      return body.Wrong("stop", "neither a text nor a list of texts");
    } else {
      for (const Json& text : *texts) {
        if (!text.is_string()) return body.Wrong("stop", "not a list of texts");
        stop->add_stop(text.get<std::string>());
      }
    }
  }
  if (const Json* const ids = body.Find("stop_token_ids"); ids != nullptr) {  // null: absent
    if (!ReadTokens(*ids, stop->mutable_stop_token_ids())) return body.Wrong("stop_token_ids", kNoTokens);
  }
  BATON_ASSIGN_OR_RETURN(const auto ignore, body.Flag("ignore_eos"));
  stop->set_ignore_eos(ignore.value_or(false));
  return absl::OkStatus();
}

absl::Status ReadOptions(JsonObject& body, v1::RequestOptions* options) {
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("n", 0, kMaxTokens),
                                      [&](int64_t n) { options->set_n(static_cast<uint32_t>(n)); }));
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("priority", -1000, 1000), [&](int64_t priority) {
    options->set_priority(static_cast<int32_t>(priority));
  }));
  return Copy<std::string>(body.Text("prompt_cache_key"),
                           [&](const std::string& key) { options->set_session_id(key); });
}

absl::Status ReadAnswer(JsonObject& body, OpenAiAnswer* answer) {
  BATON_ASSIGN_OR_RETURN(const auto stream, body.Flag("stream"));
  answer->stream = stream.value_or(false);
  const Json* const options = body.Find("stream_options");  // null: absent
  if (options == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*options, "stream_options"));
  BATON_ASSIGN_OR_RETURN(const auto usage, fields.Flag("include_usage"));
  answer->usage = usage.value_or(false);
  return absl::OkStatus();
}

// Accepted, and without effect: they are about OpenAI's own service.
void SkipForeign(JsonObject& body) {
  body.Skip(
      {"user", "safety_identifier", "metadata", "store", "service_tier", "verbosity", "prediction_disabled"});
}

absl::Status RefuseForeign(JsonObject& body, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* const value = body.Find(name);  // null: absent
    if (value != nullptr && *value != false) return body.Wrong(name, "not served here");
  }
  return absl::OkStatus();
}

absl::Status ReadThinking(JsonObject& body, v1::ChatRequest* request) {
  BATON_ASSIGN_OR_RETURN(const auto effort, body.Text("reasoning_effort"));
  if (effort == "none") {
    request->mutable_thinking()->set_enabled(false);
  } else if (effort.has_value()) {
    request->mutable_thinking()->set_effort(*effort);
  }
  const Json* const variables = body.Find("chat_template_kwargs");  // null: absent
  if (variables == nullptr) return absl::OkStatus();
  if (!variables->is_object()) return body.Wrong("chat_template_kwargs", "not a JSON object");
  for (const auto& [name, value] : variables->items()) {
    if (name == "enable_thinking" && value.is_boolean()) {
      request->mutable_thinking()->set_enabled(value.get<bool>());
    } else {
      ToValue(value,
              &(*request->mutable_conversation()->mutable_template_arguments()->mutable_fields())[name]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenAiChat> ReadOpenAiChat(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  OpenAiChat chat;
  v1::ChatRequest& request = chat.request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  BATON_RETURN_IF_ERROR(ReadMessages(body, request.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadTools(body, request.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadToolChoice(body, &request));
  BATON_RETURN_IF_ERROR(ReadThinking(body, &request));
  v1::Constraint constraint;
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &constraint));
  if (constraint.kind_case() != v1::Constraint::KIND_NOT_SET) *request.mutable_constraint() = constraint;
  BATON_RETURN_IF_ERROR(ReadSampling(body, request.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ReadStop(body, request.mutable_stop()));
  BATON_RETURN_IF_ERROR(ReadOptions(body, request.mutable_options()));
  BATON_RETURN_IF_ERROR(ReadAnswer(body, &chat.answer));
  BATON_ASSIGN_OR_RETURN(const auto logprobs, body.Flag("logprobs"));
  BATON_ASSIGN_OR_RETURN(const auto top, body.Whole("top_logprobs", 0, 20));
  request.mutable_output()->set_logprobs(logprobs.value_or(false));
  request.mutable_output()->set_top_logprobs(static_cast<uint32_t>(top.value_or(0)));
  // A client of this API asks for more than there is room for, as a rule.
  request.mutable_overflow()->set_mode(v1::Overflow::MODE_CLAMP_OUTPUT);
  if (const Json* const modalities = body.Find("modalities");  // null: absent
      modalities != nullptr && *modalities != Json::array({"text"})) {
    return body.Wrong("modalities", "only [\"text\"] is served here");
  }
  BATON_RETURN_IF_ERROR(
      RefuseForeign(body, {"audio", "web_search_options", "prediction", "continue_final_message"}));
  body.Skip({"add_generation_prompt"});
  SkipForeign(body);
  chat.answer.ignored = body.Ignored();
  return chat;
}

absl::StatusOr<OpenAiCompletion> ReadOpenAiCompletion(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  OpenAiCompletion completion;
  v1::GenerateRequest& request = completion.request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  const Json* prompt = body.Find("prompt");  // null: absent
  // A list of one prompt is that prompt.
  if (prompt != nullptr && prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number()) {
    prompt = &prompt->front();
  }
  if (prompt == nullptr) return body.Wrong("prompt", "absent");
  if (prompt->is_string()) {
    request.set_text(prompt->get<std::string>());
  } else {
    if (!ReadTokens(*prompt, request.mutable_token_ids()->mutable_ids())) {
      return body.Wrong("prompt",
                        "neither one text nor one list of token ids; send several prompts one by one");
    }
  }
  v1::Constraint constraint;
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &constraint));
  if (constraint.kind_case() != v1::Constraint::KIND_NOT_SET) *request.mutable_constraint() = constraint;
  BATON_RETURN_IF_ERROR(ReadSampling(body, request.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ReadStop(body, request.mutable_stop()));
  // The API's default.
  if (!request.stop().has_max_tokens()) request.mutable_stop()->set_max_tokens(16);
  BATON_RETURN_IF_ERROR(ReadOptions(body, request.mutable_options()));
  BATON_RETURN_IF_ERROR(ReadAnswer(body, &completion.answer));
  BATON_ASSIGN_OR_RETURN(const auto top, body.Whole("logprobs", 0, 20));
  request.mutable_output()->set_logprobs(top.has_value());
  request.mutable_output()->set_top_logprobs(static_cast<uint32_t>(top.value_or(0)));
  BATON_ASSIGN_OR_RETURN(const auto echo, body.Flag("echo"));
  completion.echo = echo.value_or(false);
  if (completion.echo && (!request.has_text() || top.has_value())) {
    return body.Wrong("echo", "served here for a prompt that is text, and without logprobs");
  }
  BATON_ASSIGN_OR_RETURN(const auto best_of, body.Whole("best_of", 1, kMaxTokens));
  if (best_of.has_value() && *best_of != (request.options().has_n() ? request.options().n() : 1)) {
    return body.Wrong("best_of", "not served here, unless it equals n");
  }
  BATON_RETURN_IF_ERROR(RefuseForeign(body, {"suffix"}));
  SkipForeign(body);
  completion.answer.ignored = body.Ignored();
  return completion;
}

absl::StatusOr<v1::TokenizeRequest> ReadTokenize(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::TokenizeRequest request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  BATON_ASSIGN_OR_RETURN(const auto prompt, body.Text("prompt"));
  if (prompt.has_value()) {
    request.set_text(*prompt);
    return request;
  }
  BATON_RETURN_IF_ERROR(ReadMessages(body, request.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadTools(body, request.mutable_conversation()));
  return request;
}

absl::StatusOr<v1::DetokenizeRequest> ReadDetokenize(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::DetokenizeRequest request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  const Json* const tokens = body.Find("tokens");  // null: absent
  if (tokens == nullptr || !ReadTokens(*tokens, request.mutable_token_ids()))
    return body.Wrong("tokens", kNoTokens);
  return request;
}

}  // namespace baton::gateway
