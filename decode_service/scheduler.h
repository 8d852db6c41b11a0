// Scheduler: the sequences of a decode worker, from the request to the last token. Continuous batching: each
// step computes what the planner says (step_planner.h). Submit takes the prompt's blocks or refuses;
// sequences grow block by block; when the pool has no block left, the youngest is preempted: it gives up its
// blocks, keeps its tokens, and is prefilled again later.
//
// clang-format off
//   kFetching -----the peer's blocks are here, or the fetch ended--> kHandoff or kPrefilling
//   kHandoff ------all blocks and the logits are here--------------> kRunning
//   kHandoff ------failed------------------------------------------> kHandoff (next worker) or kPrefilling
//   kPrefilling ---last chunk--------------------------------------> kRunning
//   kRunning ------last token, cancel, error-----------------------> gone
//   any but kPreempted --no block is left--------------------------> kPreempted
//   kPreempted ----blocks are free again---------------------------> kHandoff or kPrefilling
// clang-format on
//
// A running sequence under a grammar whose mask is not there when its token is to be drawn keeps the logits,
// and has no rows until it was drawn: it waits, and the batch goes on without it.
//
// Everything that a sequence holds ends in one place, BlockLeases::Release (block_lease.h), which waits for
// writes that have begun. No gRPC, no thread of its own: engine thread, tested by calling Step().
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "decode_service/block_lease.h"
#include "decode_service/drafting/controller.h"
#include "decode_service/drafting/past_answers.h"
#include "decode_service/model_drafts.h"
#include "decode_service/prefill_client.h"
#include "decode_service/probe.h"
#include "decode_service/sequence.h"
#include "decode_service/step_planner.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "protocol/forecast/step_forecast.h"
#include "protocol/forecast/step_totals.h"
#include "protocol/forecast/transfer_forecast.h"
#include "transfer/fetch/peer_fetch.h"
#include "transfer/link.h"

namespace baton::decode_service {

// What a worker drafts answers with (drafting/drafter.h).
struct Speculation {
  bool ngram = false;
  bool past_answers = false;
  bool grammar = false;
  bool draft_model = false;
  bool self = false;
  // Drafters in place of those, for tests.
  std::function<std::vector<std::unique_ptr<drafting::Drafter>>(const Sequence&)> make = {};
};

// The names that the worker's flag takes beside off and auto, and what it means: one of those two, or names
// with commas between them.
std::vector<std::string> SpeculationNames();
Speculation SpeculationOf(std::string_view how);

struct SchedulerOptions {
  std::string worker_id;
  Incarnation incarnation;
  // Sequences on this worker, whatever their phase, before Submit refuses.
  size_t max_sequences = 256;
  // If at most this many tokens of a prompt are uncached, they are prefilled here (conditional
  // disaggregation).
  int64_t local_prefill_tokens = 32;
  StepLimits step;
  // What a step takes here, until some were seen.
  forecast::StepCost step_cost;
  Speculation speculation;
  // What drafts beside the worker's own steps, if `speculation` has it.
  DraftModelOptions draft_model;
  // For benchmarks: the token that stands in place of the sequence's next draw, which is made all the same.
  std::function<std::optional<TokenId>(const Sequence&)> replay = {};
  // Whether prompts may have reusable spans (--chunk-reuse).
  bool chunk_reuse = false;
  // A client that takes nothing for so long loses its answer: it holds blocks that others wait for.
  absl::Duration stall_patience = absl::Seconds(60);
};

class Scheduler {
 public:
  // All outlive it.
  Scheduler(const SchedulerOptions& options, engine::Engine& engine, transfer::LinkReceiver& link,
            PrefillClient& prefill, const Clock& clock, Probe& probe,
            const fetch::PeerFetch& peer_fetch = {});
  ~Scheduler();

  // Reserves blocks for the sequence and starts it, or refuses before anything is computed:
  // RESOURCE_EXHAUSTED (with a retry delay) if blocks or places are lacking now, FAILED_PRECONDITION if it
  // could never fit, or has reusable spans and this worker takes none.
  absl::Status Submit(SequenceId id, std::unique_ptr<Sequence> sequence);
  // Ends a sequence without a message to its caller. Unknown ids are ignored.
  void Cancel(SequenceId id);
  // One step. Returns whether there is more to do at once.
  bool Step();
  // Ends every sequence with `status`.
  void Abort(const absl::Status& status);

  size_t sequences() const { return sequences_.size(); }
  size_t running() const;
  // Steps keep to them from the next one on.
  void SetTargets(const forecast::LatencyTargets& targets) { planner_.SetSloTpot(targets.tpot); }
  // The number of answers with which a step meets the target of TPOT, if each has the context that answers
  // have on average now.
  int64_t AnswersInTime() const;
  // A step was launched that nothing has waited for yet.
  bool step_in_flight() const { return in_flight_.has_value(); }
  // What hand-offs take, by prefill worker, if that has changed since this was last asked.
  std::optional<std::vector<forecast::TransferForecast::Rate>> TakeRateNews() { return rates_.TakeNews(); }
  // Prompt tokens that wait for a chunk here.
  int64_t pending_tokens() const;
  // Steps that were launched, and what the latest of them computes.
  int64_t steps_launched() const { return leases_.steps_launched(); }
  const forecast::StepLoad& last_load() const { return last_load_; }

 private:
  using Sequences = std::map<SequenceId, std::unique_ptr<Sequence>>;  // in order of arrival

  // scheduler_fetch.cc: blocks from the disk and from peers, and blocks that peers give up.
  //
  // A sequence with reserved blocks: loads what a tier has of them, or has a peer fill what that holds, if it
  // is worth it. Otherwise false, and nothing has changed. Each is asked once: the disk, a peer, the shared
  // tier.
  bool StartFetch(SequenceId id, Sequence& sequence);
  bool StartLoad(SequenceId id, Sequence& sequence, fetch::DiskSource* tier, bool& asked);
  bool StartFetchFrom(SequenceId id, Sequence& sequence, fetch::Fetcher& fetcher,
                      const fleet::v1::PeerPrefix& source);
  void OnFetchEnded(SequenceId id);
  // Seconds of computing that a prefix of so many tokens spares.
  double Saved(const Sequence& sequence, int64_t prefix) const;
  // Gives up fetches that have become slower than computing.
  void ReviewFetches();
  // Blocks for `capacity` tokens in all. Fetches that peers make from here end if the blocks are needed.
  absl::Status GrowKv(Sequence& sequence, int64_t capacity);

  // scheduler.cc: the life of a sequence.
  //
  // A sequence with reserved blocks: hands its prompt off, or has it prefilled here. Tokens of reusable spans
  // land on prefill workers alone: without one to ask, the sequence is ended at the next step.
  void StartPrefill(SequenceId id, Sequence& sequence);
  void FailStranded();
  void OnLogits(SequenceId id, std::span<const float> logits, const fleet::v1::PrefillDone& done);
  void OnHandoffEnded(SequenceId id, const absl::Status& status);
  // Draws the next token and emits it; if its mask is not there, the sequence keeps the logits (undrawn).
  void SampleAndEmit(SequenceId id, Sequence& sequence, std::span<const float> logits);
  // Tells what a chunk's rows say of the prompt's tokens behind them.
  absl::Status TellPrompt(const engine::StepResult& result, int64_t share, const PlannedRows& planned,
                          Sequence& sequence);
  // Draws the tokens that wait for a mask that is there now.
  void DrawWaiting();
  // The masks that come next are computed while the next step is.
  void WakeMasks();
  // Adds a token that was drawn to what is sent. Ends the sequence if that was its last.
  void Emit(SequenceId id, Sequence& sequence, const sampling::Draw& draw, uint32_t logits_digest);
  // Sends the tokens that were emitted and are not sent.
  void Send(Sequence& sequence);
  // Ends a sequence that draws no token: its prompt is computed.
  void FinishWarm(SequenceId id, Sequence& sequence);
  void Finish(SequenceId id, Sequence& sequence, const AnswerText::End& end);
  void Fail(SequenceId id, Sequence& sequence, const absl::Status& status);
  // `failure`: the name of the code that it ended with, if that is not OK.
  void End(SequenceId id, Probe::Outcome outcome, std::string_view failure = "");
  // Gives preempted sequences blocks again, in order of arrival, as long as there are some.
  void Readmit();
  // Pauses sequences whose client has not taken enough, and ends those whose client takes nothing.
  void Pause();
  void Preempt(Sequence& sequence);

  // scheduler_step.cc: steps.
  struct InFlightStep {
    StepPlan plan;
    // A token is drawn for every row, and all rows are of running sequences: the next step may be launched
    // before this one is complete.
    bool draws_all = false;
    absl::Time launched;
  };
  // Blocks for the token that each running sequence computes next: preempts others if it must.
  void GrowOrPreempt();
  // False if the pool has too few.
  bool Grow();
  // Plans and launches the next step. None: there is nothing to compute.
  std::optional<InFlightStep> Launch();
  // Waits for a step and sends its tokens.
  void Complete(const InFlightStep& step);
  // Sends the tokens of a sequence's logit rows in a complete step.
  void EmitFrom(const engine::StepResult& result, int64_t share, const PlannedRows& planned,
                Sequence& sequence);
  // Emits the token of one of those rows.
  void EmitRow(const engine::StepResult& result, int64_t share, int64_t row, SequenceId id,
               Sequence& sequence);
  // Counts the step's rows: as computed, and as each prompt's share of the time.
  void Count(const InFlightStep& step, absl::Duration took);
  // Adds a planned sequence to the batch.
  void AddRows(const PlannedRows& planned);
  // The mask of the token that a backend is to draw from the planned rows, if it is known before they are
  // computed.
  std::optional<std::span<const uint32_t>> MaskBefore(const PlannedRows& planned, AnswerGrammar& grammar);
  // What the planner sees of the sequences, in order of arrival.
  std::vector<PlannerSequence> PlannerView() const;

  // scheduler_progress.cc: how far prompts are.
  //
  // Tells the callers that want to know, a few times a second.
  void TellProgress();
  static void OnHandoffProgress(Sequence& sequence, const fleet::v1::PrefillProgress& progress);

  // scheduler_drafts.cc: drafted tokens.
  //
  // Gives a sequence its drafters.
  void BeginDrafts(Sequence& sequence);
  // The sequence's tokens have changed.
  void FollowDrafts(Sequence& sequence);
  // The likeliest draft of at most `most` tokens.
  void Guess(Sequence& sequence, int64_t most);
  // Has each sequence that runs guess, and says in its view what the next step checks of that; takes blocks
  // for it.
  void PlanDrafts(std::vector<PlannerSequence>& view);
  // Limits of a step with this load and drafts: --slo-tpot, and the budget of rows.
  drafting::Bounds DraftBounds(const forecast::StepLoad& load) const;
  // Drafts are worth more than launching the next step before the tokens of this one are there.
  bool DraftsWait();
  // Blocks for drafted tokens. Returns for how many there are some.
  int64_t GrowForDraft(Sequence& sequence, int64_t drafted);
  // The sequence's first drafted tokens were computed; and the model has drawn the one that was compared.
  void DraftChecked(Sequence& sequence, int64_t drafted);
  void DraftAccepted(const Sequence& sequence);
  // What the step's drafts have saved, by kind.
  void CountSavings(const InFlightStep& step);
  // The answer is one that later ones may be copied from.
  void RememberAnswer(const Sequence& sequence);

  // scheduler_models.cc: drafts of a model.
  //
  // Sequences for which one may draft now, and how many tokens it should.
  struct ModelPlan {
    std::vector<ModelDrafts::Job> jobs;
    bool empty() const { return jobs.empty(); }
  };
  // in_flight: of the sequences as they will be after the step in flight.
  ModelPlan PlanModelDrafts(bool in_flight);
  // Has the model draft for the next step, of sequences that have no row in flight.
  void DraftWithModel();
  // The blocks that drafting took and no row needs.
  void TrimAfterModel(std::span<const PlannerSequence> view);
  // Computes a piece of what the draft model lacks of a sequence, if that is worth the others' wait. False:
  // there is none.
  bool PrefillDraftModel();
  // The draw of the step in flight that gives the sequence its next token.
  std::optional<int32_t> FutureDraw(SequenceId id) const;
  void ObserveSequences();

  const SchedulerOptions options_;
  StepPlanner planner_;
  engine::Engine& engine_;
  transfer::LinkReceiver& link_;
  PrefillClient& prefill_;
  const Clock& clock_;
  Probe& probe_;
  const fetch::PeerFetch peer_fetch_;
  drafting::PastAnswers past_answers_;
  // Of the step that is completed, by kind.
  struct Drafts {
    int64_t drafted = 0;
    int64_t accepted = 0;
    double seconds = 0;  // that a model took for them
  };
  std::array<Drafts, drafting::kDrafterKinds.size()> step_drafts_{};
  std::optional<ModelDrafts> models_;  // none: no model drafts
  sampling::Sampler sampler_;
  forecast::StepForecast forecast_;
  forecast::TransferForecast rates_;  // of hand-offs that succeeded
  engine::Batch batch_;
  Sequences sequences_;
  std::vector<SequenceId> stranded_;  // have tokens that land, and no prefill worker to ask
  BlockLeases leases_;
  uint64_t next_ticket_ = 1;
  forecast::StepLoad last_load_;
  forecast::StepTotals totals_;
  double mean_context_ = 0;  // tokens that an answer attends to, in the last step with answers
  absl::Time last_completion_;
  absl::Duration mask_patience_;           // for which the step at hand still waits for masks
  std::optional<InFlightStep> in_flight_;  // at most one between two calls of Step (Engine::overlaps)
};

}  // namespace baton::decode_service
