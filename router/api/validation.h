// Which fields of a request are refused, and which defaults are filled in. Each Check names the field and
// says what is allowed; the first problem found is the answer. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "text/config/config.h"

namespace baton::router {

inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 256;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr int kMaxStopTokens = 64;
inline constexpr int kMaxPriority = 10;
inline constexpr int kMaxSessionIdBytes = 256;

// INVALID_ARGUMENT "sampling.top_p: ...". `vocabulary` in tokens.
absl::Status CheckSampling(const v1::SamplingParams& sampling, int64_t vocabulary);
absl::Status CheckStop(const v1::StopConditions& stop, int64_t vocabulary);
absl::Status CheckOutput(const v1::OutputOptions& output);
absl::Status CheckOptions(const v1::RequestOptions& options);

// Every field set: the request's, else the model's default, else what generation.proto names. do_sample false
// means temperature 0 unless the request says otherwise.
v1::SamplingParams ResolveSampling(v1::SamplingParams sampling, const model::GenerationDefaults& defaults,
                                   uint64_t seed);

// INVALID_ARGUMENT: `field` has the number `value`, which names no value of the enum. Names those that there
// are.
absl::Status NoValueOf(const google::protobuf::EnumDescriptor& type, std::string_view field, int value);

// INVALID_ARGUMENT: the prompt, or prompt and answer, do not fit the model's context. Programs know it by its
// reason (rpc::ReasonOf) and shorten the conversation.
absl::Status ExceedsContext(const std::string& message);

// Bytes of a message that a token's log probability takes, with its alternatives, about.
int64_t LogprobBytes(const v1::OutputOptions& output);

// The most tokens of each of `choices` answers that fit so many bytes in one message, as an estimate.
int64_t TokensOfMessage(const v1::OutputOptions& output, uint32_t max_answer_bytes, int choices);

// FAILED_PRECONDITION: the build that the request is pinned to does not serve its model now, and `serves`
// does.
absl::Status BuildNotServed(const std::string& serves);
// UNAVAILABLE: the router is leaving, and waits no longer for what it has begun; another may answer at once.
absl::Status DrainingError();
// A call that its client ends now ends by its deadline. The client's clock is ahead by the time that the call
// took to get here, so the last tenth of a second counts.
bool EndsByDeadline(absl::Time now, absl::Time deadline);
// ABORTED: the client took no message for so long.
absl::Status StalledError(absl::Duration stall);

// max_tokens for a prompt of `prompt_tokens`. What was asked for and does not fit the context is refused,
// stating both numbers, unless `clamp` cuts it to what is left; a default is cut to that anyway.
absl::StatusOr<uint32_t> ResolveMaxTokens(const v1::StopConditions& stop,
                                          const model::GenerationDefaults& defaults, int64_t prompt_tokens,
                                          int64_t context, bool clamp = false);

}  // namespace baton::router
