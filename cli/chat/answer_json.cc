#include "cli/chat/answer_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/digest.h"
#include "gateway/mapping/sampling_json.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

Json LogprobToJson(const v1::TokenLogprob& logprob) {
  return {{"token_id", logprob.token_id()},
          {"logprob", logprob.logprob()},
          {"bytes", gateway::BytesJson(logprob.bytes())}};
}

Json StepsToJson(const google::protobuf::RepeatedPtrField<v1::StepLogprobs>& steps) {
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

uint32_t LogitsDigest(const v1::ChatUnaryResponse& answer) {
  // Little endian, as the digests themselves travel.
  std::string bytes;
  for (const v1::AnswerChoice& choice : answer.choices()) {
    for (const uint32_t digest : choice.logits_digests()) {
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(digest >> shift & 0xFF));
    }
  }
  return Crc32c(bytes);
}

Json AnswerJson(const v1::ChatUnaryResponse& answer) {
  Json choices = Json::array();
  for (const v1::AnswerChoice& choice : answer.choices()) {
    Json entry = {{"choice", choices.size()}, {"text", choice.text()}};
    if (!choice.token_ids().empty()) entry["token_ids"] = choice.token_ids();
    if (!choice.logprobs().empty()) entry["logprobs"] = StepsToJson(choice.logprobs());
    if (!choice.logits_digests().empty()) entry["logits_digests"] = choice.logits_digests();
    for (const v1::SamplingTrace& trace : choice.sampling())
      entry["sampling"].push_back(gateway::TraceJson(trace));
    if (choice.has_finished()) {
      const v1::Finished& end = choice.finished();
      entry["finish_reason"] = ReasonName(end.reason());
      if (!end.stop_match().empty()) entry["stop_match"] = end.stop_match();
      if (end.has_stop_token_id()) entry["stop_token_id"] = end.stop_token_id();
      entry["usage"] = UsageToJson(end.usage());
      entry["timing"] = TimingToJson(end.timing());
      entry["relay"] = RelayToJson(end.relay());
    }
    choices.push_back(std::move(entry));
  }
  const v1::Started& started = answer.started();
  return {{"request_id", started.request_id()},
          {"model", started.model()},
          {"seed", started.seed()},
          {"prompt_tokens", started.prompt_tokens()},
          {"choices", std::move(choices)}};
}

}  // namespace baton::cli
