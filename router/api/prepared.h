// Prepared: a generation request that was validated, rendered and tokenized, with every default resolved:
// complete for the decode worker except for what placement decides. A plain value; its model is an entry of
// the registry, which outlives every request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/inference.pb.h"
#include "protocol/block_hash.h"
#include "router/admission/tenant_limits.h"
#include "router/api/served_model.h"
#include "router/api/session_prompts.h"
#include "router/billing/price.h"
#include "router/metrics/probe.h"
#include "router/moderation/rules.h"
#include "router/moderation/verdict.h"

namespace baton::router {

// Moderation of a request's answers, and of its prompt, by one classifier.
struct ModerationPlan {
  moderation::Moderator* moderator = nullptr;  // never null; it outlives every request
  moderation::Policy policy = moderation::Policy::kBlock;
  bool fail_open = false;
  absl::Duration timeout = absl::InfiniteDuration();  // each verdict's
  // The message that is answered, or its end.
  std::string question;
  // The prompt's text, if it is judged too.
  std::optional<std::string> input;
};

struct Prepared {
  const ServedModel* model = nullptr;  // never null once it was prepared
  // The model's fleet's probe; null: the flow counts with its own.
  Probe* probe = nullptr;
  admission::TenantId tenant;
  baton::fleet::v1::DecodeRequest request;
  // Hashes of the prompt's full blocks; empty: not known.
  std::vector<kv::BlockHash> chain;
  int choices = 1;
  uint64_t seed = 0;
  // The model's price when the request was prepared; null: none.
  std::shared_ptr<const billing::Price> price;
  // Hash of the session's id; 0: none.
  uint64_t session = 0;
  // With a session's id: its name in SessionPrompts, and what of the prompt is compared with its last.
  std::optional<kv::BlockHash> session_key;
  PromptSections sections;
  // That must answer; empty: any.
  std::string build;
  // Explain the placement.
  bool debug = false;
  // Occurrences of control tokens in the client's text that were encoded as characters.
  int64_t neutralised = 0;
  // How the conversation was made to fit; empty: unchanged.
  v1::ContextReport context;
  // max_tokens is the room in the context, and the client asked for more, or for none in particular, in a
  // mode that tells it so.
  bool fills_context = false;
  // The client named no max_tokens: the answer may end earlier, where the worker's KV memory does.
  bool open_ended = false;
  // The client wants to hear how far the prompt is.
  bool progress = false;
  // On the request's settings; told with the first choice's end.
  std::vector<v1::Warning> hints;
  // The client wants token ids too (the router always asks for them).
  bool token_ids = false;
  // Nothing: no classifier looks at it.
  std::optional<ModerationPlan> moderation;
};

}  // namespace baton::router
