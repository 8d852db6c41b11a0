// Warnings about an answer, as every endpoint shows them: a member `warnings`, which is there if there are
// any.
#pragma once

#include "baton/v1/generation.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// Adds `warnings` to `shown`: a list of objects with `kind`, `count` and `message`.
void AddWarnings(const v1::Finished& finished, Json* shown);

}  // namespace baton::gateway
