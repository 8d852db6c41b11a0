#include "gateway/mapping/openai_answer.h"

#include <algorithm>
#include <utility>

#include "gateway/mapping/moderation.h"
#include "gateway/mapping/sampling_json.h"
#include "gateway/mapping/sse.h"
#include "gateway/mapping/warnings.h"

namespace baton::gateway {
namespace {

const char* FinishOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "length";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    case v1::FINISH_REASON_CONTENT_FILTER:
      return "content_filter";
    default:
      return "stop";
  }
}

// The stop string that was found: vLLM's field of that name.
Json StopReasonOf(const v1::Finished& finished) {
  if (!finished.stop_match().empty()) return finished.stop_match();
  return nullptr;
}

// In seconds; the six phases add up to ttft. Who computed the prompt is empty if the other one did.
Json TimingOf(const v1::Finished& finished) {
  const v1::Timing& timing = finished.timing();
  return {{"admit", timing.admit_seconds()},
          {"decode_queue", timing.decode_queue_seconds()},
          {"prefill_queue", timing.prefill_queue_seconds()},
          {"prefill", timing.prefill_seconds()},
          {"transfer", timing.transfer_seconds()},
          {"first_token", timing.first_token_seconds()},
          {"ttft", timing.ttft_seconds()},
          {"tpot", timing.has_tpot_seconds() ? Json(timing.tpot_seconds()) : Json(nullptr)},
          {"e2e", timing.e2e_seconds()},
          {"decode_worker", finished.relay().decode_worker()},
          {"prefill_worker", finished.relay().prefill_worker()},
          {"link", finished.relay().link()}};
}

Json TokenOf(const v1::TokenLogprob& token) {
  return {{"token", token.bytes()}, {"logprob", token.logprob()}, {"bytes", BytesJson(token.bytes())}};
}

// Null: there is no trace.
Json SamplingOf(const auto& traces) {
  if (traces.empty()) return nullptr;
  Json list = Json::array();
  for (const v1::SamplingTrace& trace : traces) list.push_back(TraceJson(trace));
  return list;
}

Json ChatLogprobs(const auto& steps) {
  Json content = Json::array();
  for (const v1::StepLogprobs& step : steps) {
    Json one = TokenOf(step.chosen());
    one["top_logprobs"] = Json::array();
    for (const v1::TokenLogprob& token : step.top()) one["top_logprobs"].push_back(TokenOf(token));
    content.push_back(std::move(one));
  }
  return Json::object({{"content", std::move(content)}});
}

// The older form of text completions.
class TextLogprobs {
 public:
  // offset: where in the text the first token begins; below 0 by the bytes that the text lacks of it.
  explicit TextLogprobs(int64_t offset) : offset_(offset) {}

  // A prompt's first token, before which nothing stands.
  void AddFirst(const v1::StepLogprobs& step) { Add(step.chosen(), nullptr, nullptr); }
  void Add(const v1::StepLogprobs& step) {
    Json top = Json::object();
    for (const v1::TokenLogprob& token : step.top()) top[token.bytes()] = token.logprob();
    Add(step.chosen(), step.chosen().logprob(), std::move(top));
  }
  // Behind the last token.
  int64_t offset() const { return offset_; }
  // Null: there are none.
  Json Shown() && {
    if (tokens_.empty()) return nullptr;
    return {{"text_offset", std::move(offsets_)},
            {"token_logprobs", std::move(chosen_)},
            {"tokens", std::move(tokens_)},
            {"top_logprobs", std::move(tops_)}};
  }

 private:
  void Add(const v1::TokenLogprob& token, Json logprob, Json top) {
    tokens_.push_back(token.bytes());
    chosen_.push_back(std::move(logprob));
    tops_.push_back(std::move(top));
    offsets_.push_back(std::max<int64_t>(0, offset_));
    offset_ += std::ssize(token.bytes());
  }

  Json tokens_ = Json::array(), chosen_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
  int64_t offset_;
};

// A tokenizer may begin a text with a token of its own, and a blank: the bytes that the text lacks of its
// tokens, which may be the first of them alone. 0 where the two differ in another way.
int64_t HiddenBytes(std::string_view text, const auto& tokens) {
  std::string bytes;
  for (const v1::StepLogprobs& step : tokens) bytes += step.chosen().bytes();
  if (text.empty() || bytes.empty()) return 0;
  const size_t most = tokens[0].chosen().bytes().size() + 1;
  for (size_t hidden = 0; hidden <= std::min(most, bytes.size()); ++hidden) {
    const auto rest = std::string_view(bytes).substr(hidden);
    if (text.starts_with(rest) || rest.starts_with(text)) return static_cast<int64_t>(hidden);
  }
  return 0;
}

std::string_view PromptEcho(const OpenAiAnswer& wanted, size_t choice) {
  const size_t prompt = choice / std::max<size_t>(1, wanted.n);
  return prompt < wanted.echoes.size() ? std::string_view(wanted.echoes[prompt]) : std::string_view();
}

// The text of a completion, and its log probabilities if they are asked for.
Json TextChoice(const OpenAiAnswer& wanted, size_t which, const v1::AnswerChoice& choice) {
  std::string echo(PromptEcho(wanted, which));
  const google::protobuf::RepeatedPtrField<v1::StepLogprobs> none;
  const auto& prompt = wanted.prompt_logprobs ? choice.prompt_logprobs() : none;
  TextLogprobs logprobs(-HiddenBytes(echo, prompt));
  const bool of_tokens = echo.empty();
  for (const v1::StepLogprobs& step : prompt) {
    if (of_tokens) echo += step.chosen().bytes();
    if (&step == &prompt[0]) {
      logprobs.AddFirst(step);
    } else {
      logprobs.Add(step);
    }
  }
  for (const v1::StepLogprobs& step : choice.logprobs()) logprobs.Add(step);
  Json made = {{"text", echo + choice.text()}, {"logprobs", nullptr}};
  if (wanted.logprobs) made["logprobs"] = std::move(logprobs).Shown();
  return made;
}

std::string IdOf(OpenAiKind kind, const v1::Started& started) {
  return (kind == OpenAiKind::kChat ? "chatcmpl-" : "cmpl-") + started.request_id();
}

Json MessageOf(const v1::AnswerChoice& choice) {
  Json message = {{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}};
  std::string thinking;
  Json calls = Json::array();
  for (const v1::AnswerPart& part : choice.parts()) {
    thinking += part.thinking();
    if (!part.has_tool_call()) continue;
    const v1::ToolCall& call = part.tool_call();
    calls.push_back({{"id", call.id()},
                     {"type", "function"},
                     {"function", {{"name", call.name()}, {"arguments", call.arguments_json()}}}});
  }
  if (!choice.text().empty() || calls.empty()) message["content"] = choice.text();
  if (!thinking.empty()) message["reasoning_content"] = thinking;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace

Json CompletionDetails(const v1::Usage& usage) {
  Json details = Json::object({{"reasoning_tokens", usage.thinking_tokens()}});
  if (usage.drafted_tokens() > 0) {
    details["drafted_tokens"] = usage.drafted_tokens();
    details["accepted_tokens"] = usage.accepted_tokens();
  }
  return details;
}

Json OpenAiUsage(const v1::Usage& usage) {
  Json prompt = {{"cached_tokens", usage.cached_tokens()},
                 {"cache_write_tokens", usage.written_five_minutes_tokens() + usage.written_hour_tokens()}};
  if (usage.approximate_reused_tokens() > 0) {
    prompt["approximate_reused_tokens"] = usage.approximate_reused_tokens();
  }
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"completion_tokens", usage.completion_tokens()},
          {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
          {"prompt_tokens_details", std::move(prompt)},
          {"completion_tokens_details", CompletionDetails(usage)}};
}

Json OpenAiWhole(OpenAiKind kind, const protocol::AnswerFold& answer, const v1::Usage& usage, int64_t created,
                 const OpenAiAnswer& wanted) {
  const bool chat = kind == OpenAiKind::kChat;
  Json choices = Json::array();
  for (int i = 0; i < answer.choices().size(); ++i) {
    const v1::AnswerChoice& choice = answer.choices()[i];
    Json made = {{"index", i}};
    if (chat) {
      made["message"] = MessageOf(choice);
      made["logprobs"] = choice.logprobs().empty() ? Json(nullptr) : ChatLogprobs(choice.logprobs());
    } else {
      made.update(TextChoice(wanted, static_cast<size_t>(i), choice));
    }
    if (!choice.sampling().empty()) made["sampling"] = SamplingOf(choice.sampling());
    made["finish_reason"] = FinishOf(choice.finished().reason());
    made["stop_reason"] = StopReasonOf(choice.finished());
    if (wanted.timing) made["baton_timing"] = TimingOf(choice.finished());
    AddWarnings(choice.finished(), &made);
    choices.push_back(std::move(made));
  }
  Json whole = {{"id", IdOf(kind, answer.started())},
                {"object", chat ? "chat.completion" : "text_completion"},
                {"created", created},
                {"model", answer.started().model()},
                {"system_fingerprint", answer.started().build()},
                {"choices", std::move(choices)},
                {"usage", OpenAiUsage(usage)}};
  AddModeration(answer.choices()[0].finished(), &whole);
  return whole;
}

Json OpenAiChunks::Frame() const {
  return {{"id", IdOf(kind_, started_)},
          {"object", kind_ == OpenAiKind::kChat ? "chat.completion.chunk" : "text_completion"},
          {"created", created_},
          {"model", started_.model()},
          {"system_fingerprint", started_.build()}};
}

std::string OpenAiChunks::Chunk(Json choices, const v1::Finished* finished) const {
  Json chunk = Frame();
  chunk["choices"] = std::move(choices);
  if (finished != nullptr) AddModeration(*finished, &chunk);
  // Null in all but the last chunk, as the reference has it.
  if (wanted_.usage) chunk["usage"] = nullptr;
  return Event(chunk);
}

std::string OpenAiChunks::Add(const v1::GenerateResponse& event) {
  if (event.has_started()) {
    started_ = event.started();
    return "";
  }
  const bool chat = kind_ == OpenAiKind::kChat;
  const uint32_t index = event.has_finished() ? event.finished().choice() : event.delta().choice();
  Choice& choice = choices_[index];
  std::string bytes;
  Json sampling;  // null: there is none, or it has left with a chunk of this event
  const auto say = [&](Json fields, Json finish, Json logprobs) {
    Json made = {{"index", index}};
    if (chat) {
      made["delta"] = std::move(fields);
    } else {
      made["text"] = std::move(fields);
    }
    made["logprobs"] = std::move(logprobs);
    if (!sampling.is_null()) made["sampling"] = std::exchange(sampling, nullptr);
    made["finish_reason"] = std::move(finish);
    // A choice's end, and not what may begin it in the same event.
    const bool ends = event.has_finished() && !made["finish_reason"].is_null();
    if (ends) {
      made["stop_reason"] = StopReasonOf(event.finished());
      if (wanted_.timing) made["baton_timing"] = TimingOf(event.finished());
      AddWarnings(event.finished(), &made);
    }
    // A whole answer has the first choice's.
    bytes += Chunk(Json::array({std::move(made)}), ends && index == 0 ? &event.finished() : nullptr);
  };
  if (!choice.begun) {
    choice.begun = true;
    if (chat) say({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    if (const std::string_view echo = PromptEcho(wanted_, index);
        !chat && !echo.empty() && !wanted_.prompt_logprobs)
      say(echo, nullptr, nullptr);
  }
  if (event.has_finished()) {
    say(chat ? Json::object() : Json(""), FinishOf(event.finished().reason()), nullptr);
    return bytes;
  }
  const v1::Delta& delta = event.delta();
  if (!chat) {
    const auto shown = [&](TextLogprobs& logprobs) {
      choice.offset = logprobs.offset();
      return wanted_.logprobs ? std::move(logprobs).Shown() : Json(nullptr);
    };
    if (const auto& steps = delta.prompt_logprobs(); !steps.empty()) {
      const std::string_view echo = PromptEcho(wanted_, index);
      std::string said(choice.prompt_told ? std::string_view() : echo);
      TextLogprobs prompt(choice.offset - HiddenBytes(said, steps));
      for (const v1::StepLogprobs& step : steps) {
        if (echo.empty()) said += step.chosen().bytes();
        if (std::exchange(choice.prompt_told, true)) {
          prompt.Add(step);
        } else {
          prompt.AddFirst(step);
        }
      }
      say(std::move(said), nullptr, shown(prompt));
    }
    TextLogprobs own(choice.offset);
    for (const v1::StepLogprobs& step : delta.logprobs()) own.Add(step);
    sampling = SamplingOf(delta.sampling());
    if (Json logprobs = shown(own); !delta.text().empty() || !logprobs.is_null() || !sampling.is_null()) {
      say(delta.text(), nullptr, std::move(logprobs));
    }
    return bytes;
  }
  Json logprobs = delta.logprobs().empty() ? Json(nullptr) : ChatLogprobs(delta.logprobs());
  sampling = SamplingOf(delta.sampling());
  // Log probabilities of a delta go with its first chunk, and traces do.
  const auto part = [&](Json fields) { say(std::move(fields), nullptr, std::exchange(logprobs, nullptr)); };
  const auto call = [&](Json fields) {
    part(Json::object({{"tool_calls", Json::array({std::move(fields)})}}));
  };
  if (delta.parts().empty() && !delta.text().empty()) part(Json::object({{"content", delta.text()}}));
  for (const v1::PartEvent& one : delta.parts()) {
    if (one.has_start()) {
      choice.thinking = one.start().kind() == v1::PartStart::KIND_THINKING;
      if (one.start().kind() == v1::PartStart::KIND_TOOL_CALL) {
        call({{"index", choice.calls++},
              {"id", one.start().id()},
              {"type", "function"},
              {"function", {{"name", one.start().name()}, {"arguments", ""}}}});
      }
    } else if (!one.text().empty()) {
      part(Json::object({{choice.thinking ? "reasoning_content" : "content", one.text()}}));
    } else if (!one.arguments_json().empty()) {
      call({{"index", choice.calls - 1}, {"function", Json::object({{"arguments", one.arguments_json()}})}});
    }
  }
  if (!logprobs.is_null() || !sampling.is_null()) part(Json::object({{"content", ""}}));
  return bytes;
}

std::string OpenAiChunks::End(const v1::Usage& usage) {
  std::string bytes;
  if (wanted_.usage) {
    Json chunk = Frame();
    chunk["choices"] = Json::array();
    chunk["usage"] = OpenAiUsage(usage);
    bytes = Event(chunk);
  }
  return bytes + "data: [DONE]\n\n";
}

}  // namespace baton::gateway
