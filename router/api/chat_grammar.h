// The grammar under which a chat's answer is drawn: what its constraint asks for, and its calls where they
// are required, strict, or beside a constraint. Pure but for the verdicts that GrammarCheck keeps; takes some
// 200 ms for the worst grammars if they are compiled.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/inference.pb.h"
#include "router/api/served_model.h"

namespace baton::router {

// The grammar for a request that passed CheckToolChoice and CheckConstraint. Nothing: the answer is free.
// INVALID_ARGUMENT names the field, and in it the keyword or the line. GrammarCheck::IsNew: it takes a
// compilation.
absl::StatusOr<std::optional<baton::fleet::v1::AnswerGrammar>> ChatGrammar(const ServedModel& model,
                                                                           const v1::ChatRequest& request,
                                                                           GrammarCheck::Effort effort);

}  // namespace baton::router
