#include "router/api/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "protocol/client/limits.h"
#include "protocol/client/token_ids.h"

namespace baton::router {
namespace {

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

// [low, high]; NaN is in no range.
absl::Status InRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid("{}: {} is outside [{}, {}]", field, value, low, high);
}

// (0, high].
absl::Status Positive(const char* field, float value, float high) {
  if (value > 0 && value <= high) return absl::OkStatus();
  return Invalid("{}: {} is outside (0, {}]", field, value, high);
}

}  // namespace

absl::Status CheckSampling(const v1::SamplingParams& sampling, int64_t vocabulary) {
  if (sampling.has_temperature()) {
    BATON_RETURN_IF_ERROR(InRange("sampling.temperature", sampling.temperature(), 0, 100));
  }
  if (sampling.top_k() < 0) {
    return Invalid("sampling.top_k: {} is negative; 0 keeps all tokens", sampling.top_k());
  }
  if (sampling.has_top_p()) BATON_RETURN_IF_ERROR(Positive("sampling.top_p", sampling.top_p(), 1));
  if (sampling.has_min_p()) BATON_RETURN_IF_ERROR(InRange("sampling.min_p", sampling.min_p(), 0, 1));
  if (sampling.has_repetition_penalty()) {
    BATON_RETURN_IF_ERROR(Positive("sampling.repetition_penalty", sampling.repetition_penalty(), 10));
  }
  if (sampling.has_presence_penalty()) {
    BATON_RETURN_IF_ERROR(InRange("sampling.presence_penalty", sampling.presence_penalty(), -2, 2));
  }
  if (sampling.has_frequency_penalty()) {
    BATON_RETURN_IF_ERROR(InRange("sampling.frequency_penalty", sampling.frequency_penalty(), -2, 2));
  }
  for (const auto& [id, bias] : sampling.logit_bias()) {
    if (id < 0 || id >= vocabulary) {
      return Invalid("sampling.logit_bias: token id {} is outside the vocabulary of {}", id, vocabulary);
    }
    if (!(bias >= -100 && bias <= 100)) {
      return Invalid("sampling.logit_bias[{}]: {} is outside [-100, 100]", id, bias);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStop(const v1::StopConditions& stop, int64_t vocabulary) {
  if (stop.has_max_tokens() && stop.max_tokens() == 0) {
    return Invalid(
        "stop.max_tokens: 0; ask for at least 1, or set options.prefill_only to have the prompt computed and "
        "cached, and nothing generated");
  }
  if (stop.stop_size() > kMaxStopStrings) {
    return Invalid("stop.stop: {} strings, at most {} are allowed", stop.stop_size(), kMaxStopStrings);
  }
  for (int i = 0; i < stop.stop_size(); ++i) {
    if (stop.stop(i).empty()) return Invalid("stop.stop[{}]: empty", i);
    if (stop.stop(i).size() > kMaxStopStringBytes) {
      return Invalid("stop.stop[{}]: {} bytes, at most {} are allowed", i, stop.stop(i).size(),
                     kMaxStopStringBytes);
    }
  }
  if (stop.stop_token_ids_size() > kMaxStopTokens) {
    return Invalid("stop.stop_token_ids: {} ids, at most {} are allowed", stop.stop_token_ids_size(),
                   kMaxStopTokens);
  }
  return protocol::CheckTokenIds(stop.stop_token_ids(), vocabulary, "stop.stop_token_ids");
}

absl::Status CheckOutput(const v1::OutputOptions& output) {
  if (output.top_logprobs() > kMaxTopLogprobs) {
    return Invalid("output.top_logprobs: {}, at most {} are allowed", output.top_logprobs(), kMaxTopLogprobs);
  }
  if (output.top_logprobs() > 0 && !output.logprobs() && !output.prompt_logprobs()) {
    return Invalid("output.top_logprobs: {} without output.logprobs or output.prompt_logprobs; set one, too",
                   output.top_logprobs());
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::RequestOptions& options) {
  if (options.has_n() && (options.n() == 0 || options.n() > protocol::kMaxChoices)) {
    return Invalid("options.n: {} is outside [1, {}]", options.n(), protocol::kMaxChoices);
  }
  if (std::abs(int64_t{options.priority()}) > kMaxPriority) {
    return Invalid("options.priority: {} is outside [-{}, {}]", options.priority(), kMaxPriority,
                   kMaxPriority);
  }
  if (!v1::Speculation_IsValid(options.speculation())) {
    return NoValueOf(*v1::Speculation_descriptor(), "options.speculation", options.speculation());
  }
  if (options.session_id().size() > kMaxSessionIdBytes) {
    return Invalid("options.session_id: {} bytes, at most {} are allowed", options.session_id().size(),
                   kMaxSessionIdBytes);
  }
  if (options.idempotency_key().size() > protocol::kMaxIdempotencyKeyBytes) {
    return Invalid("options.idempotency_key: {} bytes, at most {} are allowed",
                   options.idempotency_key().size(), protocol::kMaxIdempotencyKeyBytes);
  }
  if (options.not_held() && options.idempotency_key().empty()) {
    return Invalid("options.not_held: goes with options.idempotency_key, which is missing");
  }
  return absl::OkStatus();
}

v1::SamplingParams ResolveSampling(v1::SamplingParams sampling, const model::GenerationDefaults& defaults,
                                   uint64_t seed) {
  if (!sampling.has_temperature()) {
    sampling.set_temperature(defaults.do_sample ? defaults.temperature.value_or(1) : 0);
  }
  if (!sampling.has_top_k()) sampling.set_top_k(defaults.top_k.value_or(0));
  if (!sampling.has_top_p()) sampling.set_top_p(defaults.top_p.value_or(1));
  if (!sampling.has_min_p()) sampling.set_min_p(defaults.min_p.value_or(0));
  if (!sampling.has_repetition_penalty()) {
    sampling.set_repetition_penalty(defaults.repetition_penalty.value_or(1));
  }
  if (!sampling.has_presence_penalty()) sampling.set_presence_penalty(0);
  if (!sampling.has_frequency_penalty()) sampling.set_frequency_penalty(0);
  sampling.set_seed(seed);
  return sampling;
}

absl::Status NoValueOf(const google::protobuf::EnumDescriptor& type, std::string_view field, int value) {
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    const std::string& name = type.value(i)->name();
    if (name.ends_with("_UNSPECIFIED")) continue;
    names += fmt::format("{}{}", names.empty() ? "" : i + 1 < type.value_count() ? ", " : " or ", name);
  }
  return Invalid("{}: {} is none of its values: use {}", field, value, names);
}

absl::Status ExceedsContext(const std::string& message) {
  return rpc::WithReason(absl::InvalidArgumentError(message), v1::REASON_CONTEXT_LENGTH_EXCEEDED);
}

int64_t LogprobBytes(const v1::OutputOptions& output) {
  // A TokenLogprob: its bytes, two numbers and their tags. It is an average.
  constexpr int64_t kLogprob = 18;
  return kLogprob * (1 + int64_t{output.top_logprobs()});
}

int64_t TokensOfMessage(const v1::OutputOptions& output, uint32_t max_answer_bytes, int choices) {
  // A token's text and its id. They are averages.
  constexpr int64_t kText = 8, kId = 3;
  // A trace: its numbers, and eleven tokens of some 40 bytes.
  constexpr int64_t kTrace = 480;
  int64_t bytes = kText;
  if (output.token_ids()) bytes += kId;
  if (output.logprobs()) bytes += LogprobBytes(output);
  if (output.explain()) bytes += kTrace;
  return std::max<int64_t>(1, max_answer_bytes / (bytes * choices));
}

bool EndsByDeadline(absl::Time now, absl::Time deadline) { return now + absl::Milliseconds(100) >= deadline; }

absl::Status StalledError(absl::Duration stall) {
  return absl::AbortedError(
      fmt::format("the client did not read for {} s; read on, or cancel", absl::ToDoubleSeconds(stall)));
}

absl::Status BuildNotServed(const std::string& serves) {
  return rpc::WithReason(
      absl::FailedPreconditionError(fmt::format(
          "options.build: the model is served by build {} now; ask for that one, or for none in particular",
          serves)),
      v1::REASON_BUILD_NOT_SERVED, {{"build", serves}});
}

absl::Status DrainingError() {
  const absl::Status leaving =
      absl::UnavailableError("the router is leaving, and the answer took longer than it waits: try again");
  return rpc::WithRetryDelay(rpc::WithReason(leaving, v1::REASON_ROUTER_DRAINING), absl::ZeroDuration());
}

absl::StatusOr<uint32_t> ResolveMaxTokens(const v1::StopConditions& stop,
                                          const model::GenerationDefaults& defaults, int64_t prompt_tokens,
                                          int64_t context, bool clamp) {
  const int64_t room = context - prompt_tokens;
  const bool warms = stop.has_max_tokens() && stop.max_tokens() == 0;  // RequestOptions.prefill_only
  if (room < (warms ? 0 : 1)) {
    return ExceedsContext(fmt::format("prompt: {} tokens leave no room for an answer in the context of {}",
                                      prompt_tokens, context));
  }
  if (stop.has_max_tokens()) {
    if (stop.max_tokens() > room) {
      if (clamp) return static_cast<uint32_t>(room);
      return ExceedsContext(fmt::format(
          "stop.max_tokens: a prompt of {} tokens and {} more exceed the context of {}; ask for at most {} "
          "more",
          prompt_tokens, stop.max_tokens(), context, room));
    }
    return stop.max_tokens();
  }
  return static_cast<uint32_t>(std::min<int64_t>(room, defaults.max_new_tokens.value_or(room)));
}

}  // namespace baton::router
