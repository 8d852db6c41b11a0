#include "cli/chat/answer.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/show/summary.h"
#include "common/base/digest.h"
#include "gateway/mapping/sampling_json.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

// A router allows 8 choices; an index beyond this is not from a Baton router.
constexpr uint32_t kMaxChoices = 64;

Json LogprobToJson(const v1::TokenLogprob& logprob) {
  return {{"token_id", logprob.token_id()},
          {"logprob", logprob.logprob()},
          {"bytes", gateway::BytesJson(logprob.bytes())}};
}

Json StepsToJson(const std::vector<v1::StepLogprobs>& steps) {
  Json result = Json::array();
  for (const v1::StepLogprobs& step : steps) {
    Json entry = LogprobToJson(step.chosen());
    entry["top"] = Json::array();
    for (const v1::TokenLogprob& top : step.top()) entry["top"].push_back(LogprobToJson(top));
    result.push_back(std::move(entry));
  }
  return result;
}

Json UsageToJson(const v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"completion_tokens", usage.completion_tokens()},
          {"decode_cached_tokens", usage.decode_cached_tokens()},
          {"prefill_cached_tokens", usage.prefill_cached_tokens()},
          {"thinking_tokens", usage.thinking_tokens()},
          {"drafted_tokens", usage.drafted_tokens()},
          {"accepted_tokens", usage.accepted_tokens()}};
}

Json TimingToJson(const v1::Timing& timing) {
  Json json = {{"admit", timing.admit_seconds()},
               {"decode_queue", timing.decode_queue_seconds()},
               {"prefill_queue", timing.prefill_queue_seconds()},
               {"prefill", timing.prefill_seconds()},
               {"transfer", timing.transfer_seconds()},
               {"first_token", timing.first_token_seconds()},
               {"ttft", timing.ttft_seconds()}};
  if (timing.has_tpot_seconds()) json["tpot"] = timing.tpot_seconds();
  json["e2e"] = timing.e2e_seconds();
  return json;
}

Json RelayToJson(const v1::Relay& relay) {
  return {{"decode_worker", relay.decode_worker()},
          {"prefill_worker", relay.prefill_worker()},
          {"link", relay.link()},
          {"shipped_blocks", relay.shipped_blocks()},
          {"shipped_bytes", relay.shipped_bytes()},
          {"failovers", relay.failovers()},
          {"preemptions", relay.preemptions()}};
}

std::string_view ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_TOKEN:
      return "stop_token";
    case v1::FINISH_REASON_STOP_STRING:
      return "stop_string";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "context_full";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    case v1::FINISH_REASON_CONTENT_FILTER:
      return "content_filter";
    default:
      return "unspecified";
  }
}

}  // namespace

Choice& Answer::At(uint32_t choice) {
  if (choice >= kMaxChoices) {
    if (broken_.empty()) broken_ = fmt::format("an event names choice {}", choice);
    choice = 0;
  }
  if (choice >= choices_.size()) choices_.resize(choice + 1);
  return choices_[choice];
}

void Answer::Take(const v1::GenerateResponse& event) {
  if (event.event_case() == v1::GenerateResponse::kStarted) {
    if (has_started_ && broken_.empty()) broken_ = "it started twice";
    has_started_ = true;
    started_ = event.started();
    return;
  }
  if (!has_started_ && broken_.empty()) broken_ = "its first event is not Started";
  if (event.event_case() == v1::GenerateResponse::kDelta) {
    const v1::Delta& delta = event.delta();
    Choice& choice = At(delta.choice());
    if (choice.finished && broken_.empty())
      broken_ = fmt::format("choice {} continues after its end", delta.choice());
    choice.text += delta.text();
    for (const v1::PartEvent& part : delta.parts()) router::AnswerFold::AddPart(part, &choice.parts);
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    choice.logits_digests.insert(choice.logits_digests.end(), delta.logits_digests().begin(),
                                 delta.logits_digests().end());
    choice.sampling.insert(choice.sampling.end(), delta.sampling().begin(), delta.sampling().end());
  } else if (event.event_case() == v1::GenerateResponse::kFinished) {
    Choice& choice = At(event.finished().choice());
    if (choice.finished && broken_.empty())
      broken_ = fmt::format("choice {} ended twice", event.finished().choice());
    choice.finished = true;
    choice.end = event.finished();
  }
}

absl::Status Answer::CheckComplete() const {
  std::string broken = broken_;
  if (broken.empty() && !has_started_) broken = "it has no events";
  if (broken.empty() && choices_.empty()) broken = "it has no answer";
  for (size_t i = 0; i < choices_.size() && broken.empty(); ++i) {
    if (!choices_[i].finished) broken = fmt::format("choice {} has no end", i);
  }
  if (broken.empty()) return absl::OkStatus();
  return absl::InternalError(fmt::format("the stream is incomplete or wrong: {}", broken));
}

uint32_t Answer::LogitsDigest() const {
  // Little endian, as the digests themselves travel.
  std::string bytes;
  for (const Choice& choice : choices_) {
    for (const uint32_t digest : choice.logits_digests) {
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(digest >> shift & 0xFF));
    }
  }
  return Crc32c(bytes);
}

Json Answer::ToJson() const {
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json entry = {{"choice", i}, {"text", choice.text}};
    if (!choice.token_ids.empty()) entry["token_ids"] = choice.token_ids;
    if (!choice.logprobs.empty()) entry["logprobs"] = StepsToJson(choice.logprobs);
    if (!choice.logits_digests.empty()) entry["logits_digests"] = choice.logits_digests;
    for (const v1::SamplingTrace& trace : choice.sampling)
      entry["sampling"].push_back(gateway::TraceJson(trace));
    if (choice.finished) {
      entry["finish_reason"] = ReasonName(choice.end.reason());
      if (!choice.end.stop_match().empty()) entry["stop_match"] = choice.end.stop_match();
      if (choice.end.has_stop_token_id()) entry["stop_token_id"] = choice.end.stop_token_id();
      entry["usage"] = UsageToJson(choice.end.usage());
      entry["timing"] = TimingToJson(choice.end.timing());
      entry["relay"] = RelayToJson(choice.end.relay());
    }
    choices.push_back(std::move(entry));
  }
  return {{"request_id", started_.request_id()},
          {"model", started_.model()},
          {"seed", started_.seed()},
          {"prompt_tokens", started_.prompt_tokens()},
          {"choices", std::move(choices)}};
}

}  // namespace baton::cli
