// SetMaxTokens: how many tokens an answer may have, as all HTTP APIs say it. Pure, any thread.
#pragma once

#include <cstdint>

#include "baton/v1/inference.pb.h"

namespace baton::gateway {

// Request: ChatRequest or GenerateRequest. 0 asks for the prompt to be computed and cached, and for nothing
// else.
template <typename Request>
void SetMaxTokens(int64_t count, Request* request) {
  if (count == 0) {
    request->mutable_options()->set_prefill_only(true);
  } else {
    request->mutable_stop()->set_max_tokens(static_cast<uint32_t>(count));
  }
}

}  // namespace baton::gateway
