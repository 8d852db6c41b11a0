// Sequence: everything that a decode worker knows of one running request. Plain data with an owner, the
// scheduler; engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "common/rpc/event_sink.h"
#include "common/telemetry/tracer.h"
#include "decode_service/answer_grammar.h"
#include "decode_service/answer_report.h"
#include "decode_service/answer_text.h"
#include "decode_service/block_lease.h"
#include "decode_service/draft_probe.h"
#include "decode_service/drafting/drafter.h"
#include "engine/penalty_slots.h"
#include "engine/sampling/sampler.h"
#include "protocol/prompt_chain.h"
#include "transfer/fetch/fetcher.h"

namespace baton::decode_service {

class ModelDrafter;

// The base is the way back to the router, whose client may read slowly: see rpc::EventSink.
struct Sequence : rpc::EventSink<fleet::v1::DecodeEvent> {
  enum class Phase { kFetching, kHandoff, kPrefilling, kRunning, kPreempted };

  // The request. Constant after Submit.
  std::string request_id;
  int64_t prompt_tokens = 0;  // without resumed ones
  std::string salt;
  // How its blocks are hashed, with its reusable spans.
  kv::PromptChain chain{kv::BlockHash()};
  std::vector<fleet::v1::PrefillTarget> targets;
  fleet::v1::PeerPrefix peer;  // where its leading blocks can be fetched; 0 blocks: nowhere, or asked
  std::vector<kv::PrefixLease> leases;  // of the prompt
  int priority = 0;
  int64_t max_tokens = 0;      // 0: the prompt is computed, and no token is drawn
  int64_t resumed_tokens = 0;  // answered elsewhere before
  sampling::Params sampling;
  absl::Time deadline = absl::InfiniteFuture();
  uint32_t choice = 0;
  // Trace of the calls that it causes, and its spans: null if it is not recorded.
  telemetry::TraceContext trace;
  std::unique_ptr<telemetry::RequestSpans> spans;
  RequestKind kind = RequestKind::kText;
  // Which drafters it may have, of those that the worker has.
  v1::Speculation speculation = v1::SPECULATION_UNSPECIFIED;
  // Each token leaves in an event of its own.
  bool even_frames = false;
  // Its caller is told how far its prompt is.
  bool tells_progress = false;
  // Its caller is told the log probabilities of the prompt's tokens, so all of the prompt is computed here.
  bool tells_prompt = false;

  // Where it is.
  Phase phase = Phase::kPreempted;
  bool paused = false;  // congested when the step began
  absl::Time paused_since;
  std::vector<TokenId> tokens;  // prompt and answer
  sampling::History history;
  std::unique_ptr<AnswerText> answer;
  std::unique_ptr<AnswerGrammar> grammar;  // null: the answer is free
  fleet::v1::DecodeEvent unsent;           // tokens of the step that is being emitted
  // Logits of the next token, of which the mask is not there yet: it is drawn when that is, and the sequence
  // has no rows until then. Empty: none.
  std::vector<float> undrawn;
  std::vector<std::unique_ptr<drafting::Drafter>> drafters;
  ModelDrafter* model_drafter = nullptr;              // one of them; null: no model drafts for it
  drafting::Draft draft;                              // what its rows in the step check
  std::optional<size_t> checks;                       // which token of it the next one is compared with
  BlockLease lease;                                   // its kv is never null
  std::unique_ptr<engine::PenaltySlot> penalty_slot;  // null until the backend draws with penalties
  bool asked_disk = false, asked_shared = false;      // which of its blocks they have
  fleet::v1::PeerPrefix source;                       // where the fetch in progress is from, and who runs it
  fetch::Fetcher* fetcher = nullptr;                  // null before the first
  int64_t handoff_tokens = 0;                         // length of `tokens` when the hand-off was asked for
  absl::Time handoff_started;
  double handoff_explained = 0;  // seconds of it in which the prompt waited or was computed
  size_t next_target = 0;
  v1::Progress handed_off;               // how far the prompt is at the prefill worker
  std::optional<int64_t> prefills_from;  // tokens that it had when its prefill here began
  int64_t prompt_told = 0;               // tokens of the prompt whose log probabilities are told
  v1::Progress told;                     // last, and when
  absl::Time told_at = absl::InfinitePast();
  // The answer has ended, and the sequence has not: its first token was the last, and blocks are still on
  // their way (it ends when they are here, so that the next turn finds them); or the resumed tokens were all
  // of it.
  std::optional<AnswerText::End> pending_end;
  AnswerReport report;

  engine::SequenceKv& kv() { return *lease.kv; }
  const engine::SequenceKv& kv() const { return *lease.kv; }
  // It has the prompt computed and cached, and nothing drawn.
  bool warms() const { return max_tokens == 0; }
  bool draw_waits() const { return !undrawn.empty(); }
  // It runs, and has no rows in the next step.
  bool stands() const { return paused || draw_waits(); }
  // Log probabilities of its prompt are still to be told.
  bool owes_prompt() const { return tells_prompt && prompt_told < prompt_tokens; }
  // Tokens that it has blocks for before its next step: its own, and the one that is drawn.
  int64_t capacity() const { return size() + (warms() ? 0 : 1); }
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  // Tokens that it may have in all.
  int64_t limit() const { return prompt_tokens + max_tokens; }
  // Tokens are missing that land from reusable spans, which prefill workers do.
  bool lands() const {
    return !chain.spans().empty() && kv::LandedPart(chain.spans().back()).end > kv().computed_tokens();
  }
  // Progress is to be told of it: it has no token, here or elsewhere.
  bool awaits_first_token() const {
    return tells_progress && resumed_tokens == 0 && !report.first_token_sent();
  }
  // Tokens whose KV is still to be computed; the last row gives the next token's logits.
  int64_t remaining() const { return size() - kv().computed_tokens(); }
};

// Blocks that others have computed give no logits of the prompt, and nobody asks for one twice.
inline engine::SequenceKv::Sharing SharingOf(const Sequence& sequence) {
  return sequence.tells_prompt ? engine::SequenceKv::Sharing::kNone : engine::SequenceKv::Sharing::kPrefixes;
}

}  // namespace baton::decode_service
