// Request: what a client asks of a fleet, as admission, the dispatcher and placement read it. It does not
// change once it was submitted. Plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "router/admission/tenant_limits.h"

namespace baton::router {

struct Request {
  admission::TenantId tenant;
  // The number of its model among the models' meters, if that has limits of its own.
  std::optional<admission::TenantId> model = std::nullopt;
  int choices = 1;
  // Per choice, as everything here.
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;
  // Nobody asked for max_tokens: a worker may hold less, and the answer ends where its KV memory does.
  bool open_ended = false;
  int64_t bytes = 0;  // of the prompt
  int priority = 0;
  absl::Time arrival = absl::UnixEpoch();
  // The client's, for the whole; InfiniteFuture: it has none.
  absl::Time deadline = absl::InfiniteFuture();
  // Hash of the client's session id; 0: none. A hint that breaks near ties, never more.
  uint64_t session = 0;
  // Its prompt is computed by a prefill worker if there is one, also where a decode worker would be sooner.
  bool prefill_apart = false;
  // The decode worker computes the whole prompt, whatever is cached.
  bool prefill_here = false;
  // Tokens per block of the prompt's chain, and so of what workers hold of it.
  int64_t block_tokens = kBlockTokens;

  bool has_deadline() const { return deadline < absl::InfiniteFuture(); }
};

}  // namespace baton::router
