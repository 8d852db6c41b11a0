// RequestFlow: the state machine of one generation request: events in, actions out. It knows neither gRPC nor
// threads; RequestDriver feeds it one event at a time and performs what it asks for, in order. Its promises:
// exactly one Finish or WriteLast; at most one Write outstanding; of each choice at most kHeldEvents that the
// client has not taken, and only then the next is asked for; and, whatever the end, every booking is
// released, every call hung up and every waiting choice withdrawn.
//
// States of a choice: Waiting -> Dialing -> Running -> Done; from Dialing back to Waiting when a worker
// refuses or is lost before it accepted; from Running back to Waiting when its worker is lost or leaves: the
// answer then goes on elsewhere (a migration) from prompt + tokens that came so far. Only those count: what a
// dying worker computed and did not get here is drawn again, and is the same, because a draw is a function of
// (logits, history, seed, position).
//
// A moderated choice has a moderation::Gate between its worker and the client, and one state more: Judging,
// when its worker is done and verdicts are not. Tokens that the gate holds have come, so a migration does not
// draw them again. What the gate holds is bounded by itself; the client's bound holds for what has passed it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/inference.pb.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "router/admission/meter.h"
#include "router/api/prepared.h"
#include "router/api/request_progress.h"
#include "router/api/request_trace.h"
#include "router/api/session_prompts.h"
#include "router/billing/usage_account.h"
#include "router/dispatch/dispatch_request.h"
#include "router/dispatch/placement.h"
#include "router/fleet/worker.h"
#include "router/metrics/probe.h"
#include "router/moderation/gate.h"
#include "router/moderation/probe.h"
#include "router/moderation/verdict.h"
#include "text/detokenizer.h"

namespace baton::router {

// Submit the request to the dispatcher, which places all choices. The driver sets `result`.
struct Submit {
  DispatchRequest request;
};
// Give one choice back to the dispatcher, to be placed again, but not on these workers.
struct Requeue {
  int choice;
  std::vector<Incarnation> avoid;
  // The client has had tokens of it.
  bool begun = false;
};
// Take whatever still waits out of the queue: of one choice, or (-1) of all.
struct Withdraw {
  int choice = -1;
};
// Ask the classifier for a verdict about a choice, or (kPrompt) about the prompt. OnVerdict follows.
struct Judge {
  static constexpr int kPrompt = -1;
  int choice;
  moderation::Passage passage;
  absl::Time deadline;
  telemetry::TraceContext trace;
};
// No verdict is wanted any more.
struct StopJudging {};
// Call a decode worker. Events and the end come back with `choice` and `attempt`.
struct Dial {
  int choice;
  int attempt;
  std::shared_ptr<const fleet::Worker> worker;
  baton::fleet::v1::DecodeRequest request;
  telemetry::TraceContext trace;
};
// Ask for the next event of the choice's call.
struct ReadNext {
  int choice;
};
// End the choice's call.
struct HangUp {
  int choice;
};
// Send to the client; OnWritten comes when it has left. With `more` it may wait for the next one, which
// follows at once.
struct Write {
  v1::GenerateResponse response;
  bool more = false;
};
// Send to the client and end the call well. Nothing follows; OnWritten does not come.
struct WriteLast {
  v1::GenerateResponse response;
  admission::Meter::Use used;  // what the request is charged for
};
// End the client's stream now, over a Write that it doesn't take. OnWritten(false) and then
// Finish follow, unless it was the last.
struct Break {
  absl::Status status;
};
// End the client's call. Nothing follows.
struct Finish {
  absl::Status status;
  admission::Meter::Use used;  // what the request is charged for
};
using Action = std::variant<Submit, Requeue, Withdraw, Judge, StopJudging, Dial, ReadNext, HangUp, Write,
                            WriteLast, Break, Finish>;
using Actions = std::vector<Action>;

// All that it takes to go on with a request whose answers were begun: the request, and the tokens that came
// of each choice. KV of them may still be cached; nothing depends on it.
struct Begun {
  struct Choice {
    bool done = false;
    std::vector<int32_t> sent;
  };
  Prepared prepared;
  std::vector<Choice> choices;
  billing::UsageAccount account;
  std::vector<v1::FinishReason> reasons;  // of the choices that are done
  std::string build;                      // of its tokens
};

class RequestFlow {
 public:
  struct Options {
    std::string request_id;
    std::string client_request_id;  // the client's own name for it; empty: none
    std::string router_id;
    // Decode workers that may be lost before they accept a choice.
    int max_attempts = 3;
    // Times that a choice may go on elsewhere after its worker was lost mid-answer.
    int max_migrations = 3;
    absl::Time arrival;
    // When the request is to end, at the latest.
    absl::Time deadline = absl::InfiniteFuture();
    // How long the client may leave a message untaken.
    absl::Duration client_stall = absl::InfiniteDuration();
    // Tells why prompts of a session were not found in the cache. Outlives the flow; null: nobody does.
    SessionPrompts* sessions = nullptr;
    // Null: nothing is recorded. `trace`: what the client says of its own; `method`: what it called.
    const telemetry::Tracer* tracer = nullptr;
    telemetry::TraceContext trace;
    std::string_view method;
    // The request is the router's own, for a verdict: it is not counted among the clients'.
    bool internal = false;
    moderation::Probe* moderation = nullptr;  // null: it counts nothing
  };
  // One with the client and one behind it, so that reading and writing go on side by side.
  static constexpr int kHeldEvents = 2;

  RequestFlow(Options options, const Clock& clock, Probe& probe);
  ~RequestFlow();

  // Validated, rendered and tokenized; or refused.
  Actions OnPrepared(absl::StatusOr<Prepared> prepared);
  // In place of OnPrepared: a request that was begun elsewhere goes on. Its choices that are done send
  // nothing.
  Actions OnBegun(Begun begun);
  // The client had its end by another's doing: this request was neither prepared nor begun.
  void OnServed(const absl::Status& status);
  // The dispatcher could not take the request in.
  Actions OnNotAdmitted(absl::Status status);
  // The choice still waits for a worker.
  Actions OnWaits(int choice, const Waiting& waiting);
  Actions OnPlaced(int choice, absl::StatusOr<Placement> placement);
  Actions OnDecodeEvent(int choice, int attempt, baton::fleet::v1::DecodeEvent event);
  Actions OnDecodeEnd(int choice, int attempt, const absl::Status& status);
  // The classifier's verdict, or why there is none.
  Actions OnVerdict(int choice, absl::StatusOr<moderation::Verdict> verdict);
  // A Write left, or (ok false) the client is gone.
  Actions OnWritten(bool ok);
  // The client may have stopped reading: ends the request if a Write has waited for `client_stall`.
  Actions OnMaybeStalled();
  // The client cancelled, went away, or its deadline passed.
  Actions OnCancelled();
  // The router is leaving, and waits no longer.
  Actions OnDrain();

  // The request's end is decided.
  bool ended() const { return end_.has_value(); }
  // All its choices have ended well, whatever became of the call.
  bool whole() const;
  // Its name from now on: it goes on with, or reads, an answer of that name.
  void Rename(std::string request_id) { options_.request_id = std::move(request_id); }
  // After a bad end: what it takes to go on, and the messages that were not written. Nothing: no worker had
  // accepted the request, or it can't go on, as one that is moderated.
  std::optional<Begun> TakeBegun();
  std::vector<v1::GenerateResponse> TakeUnsent() { return std::move(unsent_); }

  // The request's usage so far.
  const billing::UsageAccount& account() const { return account_; }
  // The request's outcome, as far as it is known.
  struct Outcome {
    std::vector<v1::FinishReason> reasons;  // of choices that ended well, in the order in which they did
    std::optional<absl::Duration> ttft;
    // Workers of the choice that was placed, or ended, last; empty: none.
    std::string decode_worker, prefill_worker;
    int migrations = 0;
    // Findings in the choices that ended well and the prompt; nothing: it was not moderated.
    std::optional<v1::ModerationResult> moderation;
    int64_t moderation_tokens = 0;
    uint32_t approximate_reused_tokens = 0;  // of the prompt
  };
  const Outcome& outcome() const { return outcome_; }
  const std::string& request_id() const { return options_.request_id; }
  const std::string& client_request_id() const { return options_.client_request_id; }
  const telemetry::TraceContext& trace() const { return trace_.context(); }
  // How the conversation was made to fit; empty: unchanged.
  const v1::ContextReport& context_report() const { return prepared_.context; }
  absl::Time arrival() const { return options_.arrival; }
  uint64_t seed() const { return prepared_.seed; }
  // Which build answers; empty: no worker has accepted it.
  const std::string& build() const { return build_; }
  // The client wants to hear of it until its first token.
  bool tells_progress() const { return progress_.has_value(); }
  // Null: the request was refused before its model was found.
  const ServedModel* model() const { return prepared_.model; }
  // Null: nothing is moderated.
  moderation::Moderator* moderator() const {
    return prepared_.moderation.has_value() ? prepared_.moderation->moderator : nullptr;
  }
  // Null: the model has no price.
  const billing::Price* price() const { return prepared_.price.get(); }

 private:
  enum class State { kWaiting, kDialing, kRunning, kJudging, kDone };
  // Moderation between a choice's worker and the client.
  struct Moderated {
    moderation::Gate gate;
    // With token ids or log probabilities that the client sees: what they say, which may be ahead of the
    // text.
    std::optional<text::Detokenizer> tokens;
    v1::ModerationResult result;
    int64_t tokens_used = 0;
    // When the held text began to wait.
    std::optional<absl::Time> held_since;
    // From the worker; it waits for the last verdict.
    std::optional<v1::Finished> ending;
  };
  struct ChoiceState {
    State state = State::kWaiting;
    bool done = false;   // it ended well
    int attempt = 0;     // grows with every Dial; events of older ones are dropped
    bool open = false;   // there is a call that has not ended
    int held = 0;        // its events that the client has not taken
    bool asked = false;  // its next event has been asked for
    int lost = 0;        // workers in a row that did not accept
    int migrations = 0;
    std::vector<Incarnation> avoid;
    absl::Status last_loss;  // why the last of them is avoided
    Placement placement;
    absl::Time dialed;
    std::optional<absl::Time> first_token;
    baton::fleet::v1::Opening opening;  // of the worker that drew the first token
    absl::Time last_token;
    // Tokens that came so far, whether the client has them or the gate: with the prompt, what another worker
    // needs to go on from here.
    std::vector<int32_t> sent;
    int64_t tokens = 0;
    std::unique_ptr<Moderated> moderated;  // null: its answer is not moderated
  };
  struct Outgoing {
    v1::GenerateResponse response;
    // The choice whose event it is; -1: none.
    int choice = -1;
    int attempt = 0;
  };

  // Hands the prepared request to the dispatcher.
  void SubmitAll(Actions* actions);
  void SendStarted(Actions* actions);
  // The choice's worker can answer it: it is of the build that is asked for, or has begun. Else the request
  // ends.
  bool CheckBuild(int choice, Actions* actions);
  void TellProgress(int choice, v1::Progress news, Actions* actions);
  // The prompt is done.
  void EndProgress(Actions* actions);
  void OnAccepted(int choice, Actions* actions);
  void OnDelta(int choice, v1::Delta delta, Actions* actions);
  // All that was asked of the prompt has been told. Else the request ends.
  bool CheckPromptTold(Actions* actions);
  // Each token of the delta has its trace, if those were asked for. Else the request ends.
  bool CheckTraced(const v1::Delta& delta, Actions* actions);
  void SendDelta(int choice, v1::Delta delta, Actions* actions);
  void OnFinished(int choice, v1::Finished finished, const baton::fleet::v1::StepMeans& steps,
                  Actions* actions);
  // Fills in what the router knows about a choice that ends now, and lets go of its worker.
  void Complete(int choice, v1::Finished* finished);
  // Sends the last message of a choice.
  void EndChoice(int choice, v1::Finished finished, Actions* actions);

  void StartModeration(Actions* actions);
  // Through the gate: what may be sent is, what is due is judged, and what has ended ends.
  void Moderate(int choice, Actions* actions);
  void JudgePrompt(Actions* actions);
  void AskForVerdict(int choice, moderation::Passage passage, Actions* actions);
  void OnPromptVerdict(bool bad, Actions* actions);
  // The answer ends here, by the classifier's verdict.
  void Block(int choice, Actions* actions);
  // Writes the verdicts into the choice's last message and the outcome.
  void TellModeration(int choice, v1::Finished* finished);

  // Says what could have been found in the cache of the prompt, and remembers it for the next of its session.
  void DiagnoseMiss(int choice, v1::Finished* finished);
  void LostBeforeAccepted(int choice, const absl::Status& status, Actions* actions);
  void LostMidAnswer(int choice, const absl::Status& status, Actions* actions);
  // The end of a choice that no worker accepted: the last worker's own words if it says what is wrong.
  static absl::Status NoWorkerAccepted(const ChoiceState& choice, const absl::Status& otherwise);
  void Send(Outgoing outgoing, Actions* actions);
  void WriteFront(Actions* actions);
  void AskForEvent(int choice, Actions* actions);
  // The charged use: nothing before a worker accepted it; each token once.
  admission::Meter::Use Used() const;
  // All choices are done and nothing is on the way.
  bool AllDone() const;
  // The request is over: says so in metrics, once.
  void End();
  // The one way to a bad end.
  void EndWith(absl::Status status, Actions* actions);
  void FinishIfDone(Actions* actions);

  // The probe of the model's fleet, once the model is known.
  Probe& probe() const { return prepared_.probe != nullptr ? *prepared_.probe : probe_; }

  Options options_;
  const Clock& clock_;
  Probe& probe_;
  RequestTrace trace_;
  Prepared prepared_;
  std::vector<ChoiceState> choices_;
  // With a session whose prompts are remembered: its last one, and this one.
  std::shared_ptr<const SessionPrompt> last_prompt_;
  std::optional<SessionPrompt> prompt_;
  billing::UsageAccount account_;
  Outcome outcome_;
  // While the prompt is judged, or has been: its text and what was found.
  std::unique_ptr<Moderated> prompt_moderated_;
  int judging_ = 0;                           // verdicts that are out
  std::deque<Outgoing> outbox_;               // the front one is with the client while writing_
  std::vector<v1::GenerateResponse> unsent_;  // when it ended badly
  bool writing_ = false;
  absl::Time write_began_;
  bool broken_ = false;
  uint32_t prompt_logprobs_sent_ = 0;        // tokens of the prompt
  std::optional<RequestProgress> progress_;  // none: nobody asked, or the first token has come
  bool started_ = false;
  std::string build_;  // once it is started
  bool first_token_seen_ = false;
  std::optional<absl::Status> end_;  // decided; Finish follows when no Write is outstanding
  bool finished_ = false;
};

// Splits a TTFT that the router measured: `admit` is the router's own, the worker reports the middle phases
// on its own clock, and what is left (the wire, both ways) counts as first_token, so that the six sum to it.
// A worker that reports more than there was is scaled down.
PhaseSeconds SplitTtft(double ttft, double admit, const v1::Timing& worker);

}  // namespace baton::router
