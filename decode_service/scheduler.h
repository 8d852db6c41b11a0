// Scheduler: what the decode worker's next step computes. Continuous batching: every running sequence gets
// one token a step, and prompts that this worker prefills itself (short rests, or nobody else could) go in
// chunks beside them under one token budget, and, while answers run, no more rows than leave the step within
// the SLO's time per token, by what steps were seen to take. Admission takes the prompt's blocks or refuses;
// sequences grow block by block; when the pool is dry the youngest is preempted: it gives up its blocks,
// keeps its tokens, and is prefilled again later.
//
//   kHandoff ----all blocks and logits---> kRunning --end, cancel, error--> gone
//   kPrefilling --last chunk-------------> kRunning
//   kHandoff, kPrefilling, kRunning --no blocks--> kPreempted --blocks--> kHandoff or kPrefilling
//
// Everything that a sequence holds goes in one place: LetGo(), which waits for writes that have begun. No
// gRPC, no thread of its own: engine thread, tested by calling Step().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/fetch/exchange.h"
#include "common/forecast/step_forecast.h"
#include "common/sampling/sampler.h"
#include "common/transfer/link.h"
#include "decode_service/prefill_client.h"
#include "decode_service/probe.h"
#include "decode_service/sequence.h"

namespace baton::decode_service {

struct SchedulerOptions {
  std::string worker_id;
  Incarnation incarnation;
  // Sequences on this worker, whatever their state, before Submit refuses.
  size_t max_sequences = 256;
  // An uncached rest of at most this many tokens is prefilled here (conditional disaggregation).
  int64_t local_prefill_tokens = 32;
  // Rows of one prompt in one step, and of all prompts and running sequences together.
  int64_t chunk_tokens = 256;
  int64_t token_budget = 512;
  // Seconds that a step with rows of prompts may take while answers run: what each of them waits for its next
  // token. A block of prompt goes into it in any case, so that prompts get on.
  double slo_tpot = forecast::kDefaultSloTpot;
  // What a step takes here, until some were seen.
  forecast::StepCost step_cost;
  // A client that takes nothing for so long loses its answer: it holds blocks that others wait for.
  absl::Duration stall_patience = absl::Seconds(60);
};

class Scheduler {
 public:
  // All outlive it.
  Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkReceiver& link,
            PrefillClient& prefill, const Clock& clock, Probe& probe, const fetch::Exchange& exchange = {});
  ~Scheduler();

  // Reserves blocks for the sequence and starts it, or refuses before anything is computed:
  // RESOURCE_EXHAUSTED (with a retry delay) for want of blocks or places now, FAILED_PRECONDITION if it could
  // never fit.
  absl::Status Submit(SequenceId id, std::unique_ptr<Sequence> sequence);
  // Ends a sequence without a word. Unknown ids are ignored.
  void Cancel(SequenceId id);
  // One step. Returns whether there is more to do at once.
  bool Step();
  // Ends every sequence with `status`.
  void Abort(const absl::Status& status);

  size_t sequences() const { return sequences_.size(); }
  size_t running() const;
  // A step is on its way, and nobody waits for it.
  bool step_in_flight() const { return flight_.has_value(); }
  // Prompt tokens that wait for a chunk here.
  int64_t pending_tokens() const;
  // Steps that have begun, and what the latest of them computes.
  int64_t launched() const { return launched_; }
  const forecast::StepLoad& last_load() const { return last_load_; }

 private:
  using Sequences = std::map<SequenceId, std::unique_ptr<Sequence>>;  // in the order of arrival

  // A sequence with reserved blocks: has a peer fill what it holds of them, if that is worth it. Otherwise
  // false, and nothing has changed.
  bool StartFetch(SequenceId id, Sequence& sequence);
  void OnFetchEnded(SequenceId id);
  // Seconds of computing that a prefix of so many tokens spares.
  double Saved(const Sequence& sequence, int64_t prefix) const;
  // Gives up fetches that have become slower than computing.
  void ReviewFetches();
  // Blocks for `capacity` tokens in all; peers are served only from what nobody here needs.
  absl::Status GrowKv(Sequence& sequence, int64_t capacity);
  // A sequence with reserved blocks: hands its prompt off, or has it prefilled here.
  void StartPrefill(SequenceId id, Sequence& sequence);
  void OnLogits(SequenceId id, std::span<const float> logits, const v1::PrefillDone& done);
  void OnHandoffEnded(SequenceId id, const absl::Status& status);
  // Draws the next token and sends it.
  void SampleAndEmit(SequenceId id, Sequence& sequence, std::span<const float> logits);
  // Sends a token that was drawn. Ends the sequence if that was its last.
  void Emit(SequenceId id, Sequence& sequence, const sampling::Draw& draw, uint32_t logits_digest);
  void Finish(SequenceId id, Sequence& sequence, const Outbox::End& end);
  void Fail(SequenceId id, Sequence& sequence, const absl::Status& status);
  void Readmit();
  // Pauses whose client has not taken enough, and ends whose client takes nothing.
  void Pause();
  // Blocks for the token that each running sequence computes next. False if they don't suffice.
  bool Grow();
  void Preempt(Sequence& sequence);
  void End(SequenceId id, Probe::Outcome outcome);
  // The one place where blocks go back. `handoff` and `fetch` may be none.
  void LetGo(std::unique_ptr<Sequence> sequence, std::unique_ptr<Handoff> handoff,
             std::unique_ptr<fetch::Fetch> fetch, std::unique_ptr<engine::SequenceKv> kv);
  void Sweep();

  // A step between Launch and Land.
  struct Flight {
    std::vector<SequenceId> sequences;  // in the order of their rows
    std::vector<int64_t> rows;          // of each
    bool prompts = false;               // some rows are of prompts
    forecast::StepLoad load;            // what it has to compute
    bool drawn = false;                 // a token for every row, and all of running sequences: the next step
                                        // may go on from these
    absl::Time launched;
  };
  // Puts the next step together and sends it on its way. None: there is nothing to compute.
  std::optional<Flight> Launch();
  void Plan(Flight& flight);
  // Seconds that rows of prompts may add to a step of `load`: infinite while nobody waits for a next token.
  double SecondsForPrompts(const forecast::StepLoad& load) const;
  // Waits for a step, and hands out its tokens.
  void Land(const Flight& flight);
  // What the step's rows were: sequences are further by them, and each prompt has had its share of the time.
  void Count(const Flight& flight, absl::Duration took);
  // A sequence whose prompt has been computed here.
  void StartRunning(Sequence& sequence);
  // The draw, of the step under way, that gives the sequence its next token.
  std::optional<int32_t> Awaited(SequenceId id) const;

  const SchedulerOptions options_;
  engine::Engine& engine_;
  transfer::LinkReceiver& link_;
  PrefillClient& prefill_;
  const Clock& clock_;
  Probe& probe_;
  const fetch::Exchange exchange_;
  sampling::Sampler sampler_;
  forecast::StepForecast forecast_;
  engine::Batch batch_;
  Sequences sequences_;
  uint64_t next_ticket_ = 1;
  // Steps, and the one under way while nobody waits for it (Engine::overlaps).
  int64_t launched_ = 0;
  forecast::StepLoad last_load_;
  int64_t landed_ = 0;
  absl::Time last_landing_;
  std::optional<Flight> flight_;
  // What has ended and can't go yet: it ended inside one of its own callbacks, or a link or a step still
  // writes its blocks. Swept at every step.
  struct Leaving {
    std::unique_ptr<Sequence> sequence;
    std::unique_ptr<Handoff> handoff;
    std::unique_ptr<fetch::Fetch> fetch;
    std::unique_ptr<engine::SequenceKv> kv;
    int64_t launched = 0;  // steps that must have landed
  };
  bool Writing(const Leaving& leaving) const;
  std::vector<Leaving> leaving_;
};

}  // namespace baton::decode_service
