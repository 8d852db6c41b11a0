#include "gateway/mapping/openai_request.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/status.h"
#include "gateway/mapping/cache_mark.h"
#include "gateway/mapping/constraint.h"
#include "gateway/mapping/max_tokens.h"
#include "gateway/mapping/moderation.h"
#include "gateway/mapping/overflow.h"
#include "gateway/mapping/shared_fields.h"

namespace baton::gateway {
namespace {

constexpr const char* kNoTokens = "not a list of token ids";

// Max bytes, in all, of the fields that are sent again with each prompt of a completion.
constexpr size_t kMaxRepeatedBytes = 8 << 20;

// False: it is not a list of ids.
bool ReadTokens(const Json& list, google::protobuf::RepeatedField<int32_t>* ids) {
  if (!list.is_array()) return false;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokens) return false;
    ids->Add(id.get<int32_t>());
  }
  return true;
}

// A text, or a list of {"type": "text", "text"}, each of which may have a mark of the cache at its end. What
// else a tool's result has is left out.
absl::Status ReadContent(JsonObject& message, v1::Message* made) {
  constexpr std::string_view name = "content";
  const Json* const content = message.Find(name);  // null: absent
  if (content == nullptr) return absl::OkStatus();
  if (content->is_string()) {
    made->set_content(content->get<std::string>());
    return absl::OkStatus();
  }
  if (!content->is_array()) return message.Wrong(name, "neither a text nor a list of parts");
  for (size_t i = 0; i < content->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject part,
                           message.Inside((*content)[i], fmt::format("{}[{}]", message.Path(name), i)));
    BATON_ASSIGN_OR_RETURN(const auto type, part.Text("type"));
    const bool refusal = type == "refusal";
    if (type != "text" && !refusal) {
      if (made->role() == "tool" && type.has_value()) {
        BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(part));
        AddText(StandIn(*type), mark, made);
        continue;
      }
      return part.Wrong("type", fmt::format("\"{}\" is not served here; send parts of the type \"text\"",
                                            type.value_or("")));
    }
    BATON_ASSIGN_OR_RETURN(const auto piece, part.Text(refusal ? "refusal" : "text"));
    if (!piece.has_value()) return part.Wrong("text", "absent");
    BATON_ASSIGN_OR_RETURN(const auto mark, ReadMark(part));
    BATON_ASSIGN_OR_RETURN(const bool reusable, ReadReusable(part));
    AddText(*piece, mark, made, reusable);
  }
  return absl::OkStatus();
}

absl::Status ReadCalls(JsonObject& message, v1::Message* made) {
  BATON_ASSIGN_OR_RETURN(const Json* const calls, message.List("tool_calls"));
  if (calls == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < calls->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject call,
                           message.Inside((*calls)[i], fmt::format("{}[{}]", message.Path("tool_calls"), i)));
    call.Skip({"type", "index"});
    const Json* const function = call.Find("function");  // null: absent
    if (function == nullptr) return call.Wrong("function", "absent");
    BATON_ASSIGN_OR_RETURN(JsonObject named, call.Inside(*function, call.Path("function")));
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
  BATON_ASSIGN_OR_RETURN(const Json* const messages, body.List("messages", kMaxMessages));
  if (messages == nullptr) return body.Wrong("messages", "absent");
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject message, body.Inside((*messages)[i], fmt::format("messages[{}]", i)));
    v1::Message& made = *conversation->add_messages();
    BATON_ASSIGN_OR_RETURN(const auto role, message.Text("role"));
    // Newer models call the system prompt so.
    made.set_role(role == "developer" ? "system" : role.value_or(""));
    if (message.Find("function_call") != nullptr) {
      return message.Wrong("function_call", "not served here; send tool_calls");
    }
    if (message.Find("audio") != nullptr) return message.Wrong("audio", "not served here");
    BATON_RETURN_IF_ERROR(ReadContent(message, &made));
    BATON_ASSIGN_OR_RETURN(auto thinking, message.Text("reasoning_content"));
    if (!thinking.has_value()) {
      BATON_ASSIGN_OR_RETURN(thinking, message.Text("reasoning"));
    }
    made.set_reasoning_content(thinking.value_or(""));
    BATON_RETURN_IF_ERROR(ReadCalls(message, &made));
    BATON_ASSIGN_OR_RETURN(const auto call, message.Text("tool_call_id"));
    made.set_tool_call_id(call.value_or(""));
    // An answer is sent back as it came.
    message.Skip({"refusal", "annotations"});
  }
  return absl::OkStatus();
}

absl::Status ReadOpenAiTools(JsonObject& body, v1::Conversation* conversation) {
  if (const Json* const functions = body.Find("functions"); functions != nullptr && !functions->empty())
    return body.Wrong("functions", "not served here; send tools");
  if (body.Find("function_call") != nullptr) {
    return body.Wrong("function_call", "not served here; send tool_choice");
  }
  BATON_ASSIGN_OR_RETURN(const Json* const tools, body.List("tools"));
  if (tools == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool, body.Inside((*tools)[i], fmt::format("tools[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto type, tool.Text("type"));
    const Json* const function = tool.Find("function");  // null: absent
    if (type.value_or("function") != "function" || function == nullptr) {
      return tool.Wrong("type", "only tools of the type \"function\" are served here");
    }
    BATON_ASSIGN_OR_RETURN(JsonObject named, tool.Inside(*function, tool.Path("function")));
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

absl::StatusOr<std::string> FunctionName(JsonObject& choice) {
  const Json* const function = choice.Find("function");  // null: absent
  if (function == nullptr) return choice.Wrong("function", "absent");
  BATON_ASSIGN_OR_RETURN(JsonObject named, choice.Inside(*function, choice.Path("function")));
  BATON_ASSIGN_OR_RETURN(const auto name, named.Text("name"));
  if (!name.has_value()) return named.Wrong("name", "absent");
  return *name;
}

absl::Status ReadOpenAiToolChoice(JsonObject& body, v1::ChatRequest* request) {
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
    BATON_ASSIGN_OR_RETURN(const auto mode, ToolModeOf(body, choice->get<std::string>()));
    request->mutable_tool_choice()->set_mode(mode);
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(JsonObject object, body.Inside(*choice, "tool_choice"));
  BATON_ASSIGN_OR_RETURN(const auto type, object.Text("type"));
  if (type == "function") {
    BATON_ASSIGN_OR_RETURN(const std::string name, FunctionName(object));
    request->mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_REQUIRED);
    request->mutable_tool_choice()->add_names(name);
    return absl::OkStatus();
  }
  if (type == "auto" || type == "none" || type == "required") {
    BATON_ASSIGN_OR_RETURN(const auto mode, ToolModeOf(body, *type));
    request->mutable_tool_choice()->set_mode(mode);
    return absl::OkStatus();
  }
  if (type != "allowed_tools") return object.Wrong("type", "neither \"function\" nor \"allowed_tools\"");
  const Json* const allowed = object.Find("allowed_tools");  // null: absent
  if (allowed == nullptr) return object.Wrong("allowed_tools", "absent");
  BATON_ASSIGN_OR_RETURN(JsonObject subset, object.Inside(*allowed, "tool_choice.allowed_tools"));
  BATON_ASSIGN_OR_RETURN(const auto word, subset.Text("mode"));
  BATON_ASSIGN_OR_RETURN(const auto mode, ToolModeOf(body, word.value_or("auto")));
  request->mutable_tool_choice()->set_mode(mode);
  BATON_ASSIGN_OR_RETURN(const Json* const tools, subset.List("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject tool,
                           subset.Inside((*tools)[i], fmt::format("tool_choice.allowed_tools.tools[{}]", i)));
    tool.Skip({"type"});
    BATON_ASSIGN_OR_RETURN(const std::string name, FunctionName(tool));
    request->mutable_tool_choice()->add_names(name);
  }
  return absl::OkStatus();
}

template <typename Request>
absl::Status ReadStop(JsonObject& body, Request* request) {
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    BATON_RETURN_IF_ERROR(
        Copy<int64_t>(body.Whole(name, 0, kMaxTokens), [&](int64_t n) { SetMaxTokens(n, request); }));
  }
  v1::StopConditions* const stop = request->mutable_stop();
  if (const Json* const texts = body.Find("stop"); texts != nullptr) {  // null: absent
    // An empty text asks for nothing.
    const auto add = [stop](const Json& text) {
      if (text != "") stop->add_stop(text.get<std::string>());
    };
    if (texts->is_string()) {
      add(*texts);
    } else if (!texts->is_array()) {
      return body.Wrong("stop", "neither a text nor a list of texts");
    } else {
      for (const Json& text : *texts) {
        if (!text.is_string()) return body.Wrong("stop", "not a list of texts");
        add(text);
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
  BATON_RETURN_IF_ERROR(ReadSpeculation(body, options));
  BATON_RETURN_IF_ERROR(Copy<int64_t>(body.Whole("priority", -1000, 1000), [&](int64_t priority) {
    options->set_priority(static_cast<int32_t>(priority));
  }));
  return Copy<std::string>(body.Text("prompt_cache_key"),
                           [&](const std::string& key) { options->set_session_id(key); });
}

// A text, a list of token ids, or a list of prompts, each of which is one of both.
absl::StatusOr<std::vector<v1::GenerateRequest>> ReadPrompts(JsonObject& body) {
  const Json* const prompt = body.Find("prompt");  // null: absent
  if (prompt == nullptr) return body.Wrong("prompt", "absent");
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (several && prompt->size() > kMaxPrompts) {
    return body.Wrong("prompt", fmt::format("{} of them; at most {} are taken with one request",
                                            prompt->size(), kMaxPrompts));
  }
  std::vector<v1::GenerateRequest> requests(several ? prompt->size() : 1);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Json& one = several ? (*prompt)[i] : *prompt;
    if (one.is_string()) {
      requests[i].set_text(one.get<std::string>());
    } else if (!ReadTokens(one, requests[i].mutable_token_ids()->mutable_ids())) {
      return body.Wrong(requests.size() > 1 ? fmt::format("prompt[{}]", i) : "prompt",
                        "neither a text nor a list of token ids");
    }
  }
  return requests;
}

absl::Status RefuseBestOf(JsonObject& body, const v1::RequestOptions& options) {
  BATON_ASSIGN_OR_RETURN(const auto best_of, body.Whole("best_of", 1, kMaxTokens));
  if (best_of.has_value() && *best_of != (options.has_n() ? options.n() : 1)) {
    return body.Wrong("best_of", "not served here, unless it equals n");
  }
  return absl::OkStatus();
}

absl::Status ReadAnswer(JsonObject& body, OpenAiAnswer* answer, v1::OutputOptions* output) {
  BATON_ASSIGN_OR_RETURN(const auto stream, body.Flag("stream"));
  answer->stream = stream.value_or(false);
  BATON_ASSIGN_OR_RETURN(const auto timing, body.Flag("baton_timing"));
  answer->timing = timing.value_or(false);
  BATON_ASSIGN_OR_RETURN(const auto explain, body.Flag("explain"));
  output->set_explain(explain.value_or(false));
  const Json* const options = body.Find("stream_options");  // null: absent
  if (options == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject fields, body.Inside(*options, "stream_options"));
  BATON_ASSIGN_OR_RETURN(const auto usage, fields.Flag("include_usage"));
  answer->usage = usage.value_or(false);
  return absl::OkStatus();
}

// Accepted, and without effect: they are about OpenAI's own service.
absl::Status SkipForeign(JsonObject& body) {
  body.Skip({"user", "safety_identifier", "metadata", "store", "verbosity", "prompt_cache_retention"});
  return ReadServiceTier(body, {"auto", "default"});
}

// The prompt is a part of the answer, with its log probabilities if those of the answer are asked for. Token
// ids are echoed by them: only the router knows their texts.
absl::Status ReadEcho(const JsonObject& body, v1::GenerateRequest* request, OpenAiCompletion* completion) {
  if (request->overflow().clamp_output()) {
    return body.Wrong("overflow",
                      "with echo the whole prompt is a part of the answer: leave out one of both");
  }
  bool ids = false;
  for (const v1::GenerateRequest& one : completion->requests) {
    ids |= !one.has_text();
    completion->answer.echoes.push_back(one.text());
  }
  if (!ids && !request->output().logprobs()) return absl::OkStatus();
  if (request->options().n() > 1) {
    return body.Wrong("n", "one choice has a prompt's tokens: with echo and logprobs, or token ids, it is 1");
  }
  if (ids && completion->answer.stream) {
    return body.Wrong("echo",
                      "of token ids, not served as a stream: their texts may begin inside a character");
  }
  completion->answer.prompt_logprobs = true;
  request->mutable_output()->set_prompt_logprobs(true);
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
  BATON_RETURN_IF_ERROR(ReadOpenAiTools(body, request.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadOpenAiToolChoice(body, &request));
  BATON_RETURN_IF_ERROR(ReadEffort(body, "reasoning_effort", &request));
  BATON_RETURN_IF_ERROR(ReadTemplateArguments(body, &request));
  BATON_RETURN_IF_ERROR(ReadThinkingExtras(body, &request));
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &request));
  BATON_RETURN_IF_ERROR(ReadSampling(body, request.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ReadStop(body, &request));
  BATON_RETURN_IF_ERROR(ReadOptions(body, request.mutable_options()));
  BATON_RETURN_IF_ERROR(ReadModeration(body, request.mutable_options()));
  BATON_RETURN_IF_ERROR(ReadAnswer(body, &chat.answer, request.mutable_output()));
  BATON_ASSIGN_OR_RETURN(const auto logprobs, body.Flag("logprobs"));
  BATON_ASSIGN_OR_RETURN(const auto top, body.Whole("top_logprobs", 0, 20));
  request.mutable_output()->set_logprobs(logprobs.value_or(false));
  request.mutable_output()->set_top_logprobs(static_cast<uint32_t>(top.value_or(0)));
  BATON_RETURN_IF_ERROR(ReadSpecialTokens(body, request.mutable_output()));
  // A client of this API asks for more than there is room for, as a rule.
  BATON_RETURN_IF_ERROR(ReadOverflow(body, v1::Overflow::MODE_CLAMP_OUTPUT, request.mutable_overflow()));
  if (const Json* const modalities = body.Find("modalities");  // null: absent
      modalities != nullptr && *modalities != Json::array({"text"})) {
    return body.Wrong("modalities", "only [\"text\"] is served here");
  }
  BATON_RETURN_IF_ERROR(RefuseForeign(body, {"audio", "web_search_options", "echo"}));
  BATON_RETURN_IF_ERROR(RefuseUnserved(body));
  BATON_RETURN_IF_ERROR(RefuseForms(body));
  BATON_RETURN_IF_ERROR(RefuseBestOf(body, request.options()));
  BATON_ASSIGN_OR_RETURN(const auto continued, body.Flag("continue_final_message"));
  BATON_ASSIGN_OR_RETURN(const auto turn, body.Flag("add_generation_prompt"));
  if (continued.value_or(false) && turn.value_or(false)) {
    return body.Wrong("add_generation_prompt", "continue_final_message asks for the opposite");
  }
  if (!continued.value_or(false) && !turn.value_or(true)) {
    return body.Wrong("add_generation_prompt",
                      "without continue_final_message, the answer is always a turn of its own here");
  }
  request.mutable_conversation()->set_continue_last(continued.value_or(false));
  BATON_RETURN_IF_ERROR(SkipForeign(body));
  chat.answer.ignored = body.Ignored();
  return chat;
}

absl::StatusOr<OpenAiCompletion> ReadOpenAiCompletion(const Json& json) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  OpenAiCompletion completion;
  // The fields that all prompts share.
  v1::GenerateRequest request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  BATON_ASSIGN_OR_RETURN(completion.requests, ReadPrompts(body));
  BATON_RETURN_IF_ERROR(ReadConstraint(body, &request));
  BATON_RETURN_IF_ERROR(ReadSampling(body, request.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ReadStop(body, &request));
  // The API's default.
  if (!request.stop().has_max_tokens() && !request.options().prefill_only())
    request.mutable_stop()->set_max_tokens(16);
  BATON_RETURN_IF_ERROR(ReadOverflow(body, v1::Overflow::MODE_CLAMP_OUTPUT, request.mutable_overflow()));
  BATON_RETURN_IF_ERROR(ReadOptions(body, request.mutable_options()));
  BATON_RETURN_IF_ERROR(ReadAnswer(body, &completion.answer, request.mutable_output()));
  BATON_ASSIGN_OR_RETURN(const auto top, body.Whole("logprobs", 0, 20));
  request.mutable_output()->set_logprobs(top.has_value());
  request.mutable_output()->set_top_logprobs(static_cast<uint32_t>(top.value_or(0)));
  completion.answer.logprobs = top.has_value();
  BATON_RETURN_IF_ERROR(ReadSpecialTokens(body, request.mutable_output()));
  BATON_ASSIGN_OR_RETURN(const auto echo, body.Flag("echo"));
  if (echo.value_or(false)) BATON_RETURN_IF_ERROR(ReadEcho(body, &request, &completion));
  BATON_RETURN_IF_ERROR(RefuseBestOf(body, request.options()));
  if (const Json* const suffix = body.Find("suffix"); suffix != nullptr && *suffix != "") {  // null: absent
    return body.Wrong("suffix", "not served here");
  }
  BATON_RETURN_IF_ERROR(RefuseUnserved(body));
  BATON_RETURN_IF_ERROR(RefuseForms(body));
  BATON_RETURN_IF_ERROR(SkipForeign(body));
  const size_t repeated = request.ByteSizeLong() * completion.requests.size();
  if (completion.requests.size() > 1 && repeated > kMaxRepeatedBytes) {
    return body.Wrong("prompt",
                      fmt::format("{} of them, and all else is sent with each: {} bytes, at most {}; send "
                                  "fewer prompts, or a shorter schema or grammar",
                                  completion.requests.size(), repeated, kMaxRepeatedBytes));
  }
  for (v1::GenerateRequest& one : completion.requests) one.MergeFrom(request);
  if (request.options().has_n()) completion.answer.n = request.options().n();
  completion.answer.ignored = body.Ignored();
  return completion;
}

absl::StatusOr<v1::TokenizeRequest> ReadTokenize(const Json& json, std::vector<std::string>* ignored) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::TokenizeRequest request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  BATON_ASSIGN_OR_RETURN(const auto prompt, body.Text("prompt"));
  if (prompt.has_value()) {
    request.mutable_generate()->set_model(model.value_or(""));
    request.mutable_generate()->set_text(*prompt);
    if (ignored != nullptr) *ignored = body.Ignored();
    return request;
  }
  v1::ChatRequest& chat = *request.mutable_chat();
  chat.set_model(model.value_or(""));
  BATON_RETURN_IF_ERROR(ReadMessages(body, chat.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadOpenAiTools(body, chat.mutable_conversation()));
  BATON_RETURN_IF_ERROR(ReadTemplateArguments(body, &chat));
  if (ignored != nullptr) *ignored = body.Ignored();
  return request;
}

absl::StatusOr<v1::DetokenizeRequest> ReadDetokenize(const Json& json, std::vector<std::string>* ignored) {
  BATON_ASSIGN_OR_RETURN(JsonObject body, JsonObject::Of(json, ""));
  v1::DetokenizeRequest request;
  BATON_ASSIGN_OR_RETURN(const auto model, body.Text("model"));
  request.set_model(model.value_or(""));
  const Json* const tokens = body.Find("tokens");  // null: absent
  if (tokens == nullptr || !ReadTokens(*tokens, request.mutable_token_ids()))
    return body.Wrong("tokens", kNoTokens);
  if (ignored != nullptr) *ignored = body.Ignored();
  return request;
}

}  // namespace baton::gateway
