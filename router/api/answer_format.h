// How an answer of Chat becomes typed parts: what the request asks of it, checked, and what the decode worker
// is told. Pure functions, any thread.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/inference.pb.h"
#include "router/api/served_model.h"

namespace baton::router {

inline constexpr int kMaxEffortBytes = 64;

// The fields tool_choice and thinking. INVALID_ARGUMENT names the field; UNIMPLEMENTED: a choice that the
// model's format keeps from being enforced.
absl::Status CheckToolChoice(const ServedModel& model, const v1::ChatRequest& request);
absl::Status CheckThinking(const ServedModel& model, const v1::ChatRequest& request);

// The field constraint, and tools that ask for one: whether the answers to this request can have it.
// UNIMPLEMENTED where the model's format, or tools beside it, can't.
absl::Status CheckConstraint(const ServedModel& model, const v1::ChatRequest& request);
// True if answers to such a request are written in channels, one of which is the answer's text.
bool InChannels(const ServedModel& model, const v1::ChatRequest& request);
// True if calls in such answers are drawn under a grammar.
bool CallsConstrained(const ServedModel& model, const v1::ChatRequest& request);
// True if such an answer may begin with thinking that the prompt did not begin, and that a grammar would
// sleep through.
bool MayThink(const ServedModel& model, const v1::ChatRequest& request);

// The format for a request that passed both checks and the prompt rendered from its conversation. Nothing:
// its answer is text only, because the model's format is not known or the client wants it raw.
std::optional<baton::fleet::v1::AnswerFormat> AnswerFormatOf(const ServedModel& model,
                                                             const v1::ChatRequest& request,
                                                             std::string_view prompt);

}  // namespace baton::router
