// Counts of tokens of a whole request, as both vendors want them. Pure functions, any thread.
#pragma once

#include <limits>
#include <optional>

#include "baton/v1/generation.pb.h"
#include "protocol/client/answer_fold.h"

namespace baton::gateway {

// The usage of a prompt whose choices are the `count` from `first`. `told`: of its call's trailer;
// absent: the stream's end has not been seen, and the counts are those of the choices that ended.
v1::Usage UsageOf(const std::optional<v1::RequestUsage>& told, const protocol::AnswerFold::Choices& choices,
                  int first = 0, int count = std::numeric_limits<int>::max());
// Adds the usage of another prompt.
void AddUsage(const v1::Usage& one, v1::Usage* sum);

}  // namespace baton::gateway
