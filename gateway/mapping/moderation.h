// OpenAI's moderation: POST /v1/moderations, and the member `moderation` of requests and answers. Pure
// functions, any thread. Source: its API reference (moderations).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// Names that begin as those of OpenAI's own classifiers stand for the operator's. ignored: is set to the
// members of the body that were; null: nobody asks.
absl::StatusOr<v1::ModerateRequest> ReadModerations(const Json& body,
                                                    std::vector<std::string>* ignored = nullptr);

// {"id", "model", "results"}. OpenAI's categories are always there, as its clients want them; a classifier's
// own are beside them. One counts as flagged from a score of one half.
Json ModerationsJson(const v1::ModerateResponse& answer, const std::string& id);

// The member of a request for an answer; nothing is set if it is absent.
absl::Status ReadModeration(JsonObject& body, v1::RequestOptions* options);
// The member of an answer; null: it was not moderated.
Json ModerationJson(const v1::Finished& finished);
// Adds it as `moderation`, if it is one.
void AddModeration(const v1::Finished& finished, Json* shown);

}  // namespace baton::gateway
