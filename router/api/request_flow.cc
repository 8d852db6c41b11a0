#include "router/api/request_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/status.h"
#include "router/api/reusable_parts.h"
#include "router/api/usage.h"
#include "router/api/validation.h"
#include "router/moderation/text.h"

namespace baton::router {
namespace {

// Codes with which a worker, or the wire to it, says that another worker may succeed. UNKNOWN is the wire's
// own: no worker of ours ends a call with it.
bool WorkerLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsFailedPrecondition(status) ||
         absl::IsUnimplemented(status) || absl::IsUnknown(status);
}

// It comes from the wire to a worker, whose words name its address: clients may be strangers, and the log has
// them.
bool OfTheWire(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnknown(status) || absl::IsCancelled(status);
}

// As clients hear it: the worker's id, and its own words.
absl::Status Named(const std::string& worker, const absl::Status& status) {
  if (OfTheWire(status)) {
    return absl::Status(status.code(),
                        fmt::format("decode worker {} could not be reached, or broke off", worker));
  }
  return absl::Status(status.code(),
                      fmt::format("decode worker {}: {}", worker, std::string(status.message())));
}

// Lowers max_tokens to what the worker's KV memory holds beside the prompt, but not below what a choice that
// has `sent` tokens already needs: then the worker refuses, and says how much it has.
void BoundByMemory(const fleet::Worker& worker, size_t sent, baton::fleet::v1::DecodeRequest* request) {
  if (worker.TotalBlocks() == 0) return;  // not known
  const int64_t room = worker.TotalBlocks() * kBlockTokens - request->token_ids_size();
  const int64_t bound = std::max<int64_t>(room, static_cast<int64_t>(sent) + 1);
  request->mutable_stop()->set_max_tokens(
      static_cast<uint32_t>(std::min<int64_t>(request->stop().max_tokens(), bound)));
}

}  // namespace

RequestFlow::RequestFlow(Options options, const Clock& clock, Probe& probe)
    : options_(std::move(options)),
      clock_(clock),
      probe_(probe),
      trace_(options_.tracer, options_.trace, clock, options_.arrival, options_.request_id,
             options_.client_request_id, options_.method) {
  if (!options_.internal) probe_.RequestCame();
}

RequestFlow::~RequestFlow() {
  BATON_DCHECK(finished_) << "request " << options_.request_id << " never finished";
}

Actions RequestFlow::OnPrepared(absl::StatusOr<Prepared> prepared) {
  Actions actions;
  if (end_.has_value()) return actions;
  if (!prepared.ok()) {
    // Nobody waited for the prompt any more: because the client left, or because it was too late.
    const bool late = absl::IsCancelled(prepared.status()) && clock_.Now() >= options_.deadline;
    EndWith(late ? absl::DeadlineExceededError("the deadline passed before the prompt was prepared")
                 : prepared.status(),
            &actions);
    return actions;
  }
  prepared_ = *std::move(prepared);
  choices_.resize(prepared_.choices);
  trace_.Submitted(prepared_);
  const baton::fleet::v1::DecodeRequest& request = prepared_.request;
  account_ = billing::UsageAccount(request.token_ids_size(), prepared_.choices);
  if (prepared_.progress) progress_.emplace(request.token_ids_size());
  StartModeration(&actions);
  // A prompt that may be refused is judged before anything is computed for it.
  if (prompt_moderated_ == nullptr || prepared_.moderation->policy != moderation::Policy::kBlock) {
    SubmitAll(&actions);
  }
  return actions;
}

Actions RequestFlow::OnBegun(Begun begun) {
  Actions actions;
  if (end_.has_value()) return actions;
  prepared_ = std::move(begun.prepared);
  account_ = std::move(begun.account);
  outcome_.reasons = std::move(begun.reasons);
  choices_.resize(prepared_.choices);
  started_ = true;
  build_ = prepared_.build = std::move(begun.build);  // clients have a part of it
  trace_.Submitted(prepared_);
  SubmitAll(&actions);
  for (int i = 0; i < prepared_.choices; ++i) {
    ChoiceState& state = choices_[i];
    state.sent = std::move(begun.choices[i].sent);
    state.tokens = static_cast<int64_t>(state.sent.size());
    if (!begun.choices[i].done) continue;
    state.state = State::kDone;
    actions.push_back(Withdraw{i});
  }
  return actions;
}

void RequestFlow::OnServed(const absl::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  End();
}

std::optional<Begun> RequestFlow::TakeBegun() {
  if (!started_ || prepared_.moderation.has_value()) return std::nullopt;
  Begun begun;
  for (size_t i = 0; i < choices_.size(); ++i) {
    ChoiceState& state = choices_[i];
    // A worker that counts tokens without naming them leaves nothing to go on from.
    if (static_cast<int64_t>(state.sent.size()) != state.tokens) return std::nullopt;
    begun.choices.push_back({.done = state.done, .sent = std::move(state.sent)});
  }
  begun.prepared = std::move(prepared_);
  begun.account = account_;
  begun.reasons = outcome_.reasons;
  begun.build = build_;
  return begun;
}

void RequestFlow::SubmitAll(Actions* actions) {
  const baton::fleet::v1::DecodeRequest& request = prepared_.request;
  DispatchRequest submitted;
  submitted.tenant = prepared_.tenant;
  submitted.model = prepared_.model->meter;
  submitted.choices = prepared_.choices;
  submitted.prompt_tokens = request.token_ids_size();
  submitted.max_tokens = request.stop().max_tokens();
  submitted.open_ended = prepared_.open_ended;
  submitted.arrival = options_.arrival;
  submitted.deadline = options_.deadline;
  submitted.session = prepared_.session;
  submitted.prefill_apart = request.reusable_size() > 0;
  submitted.prefill_here = request.output().prompt_logprobs();
  outcome_.approximate_reused_tokens = static_cast<uint32_t>(kv::LandedTokens(ReusableSpansOf(request)));
  const bool cached = !request.output().prompt_logprobs();
  if (cached && !started_ && options_.sessions != nullptr && prepared_.session_key.has_value() &&
      !prepared_.chain.empty()) {
    last_prompt_ = options_.sessions->Find(*prepared_.session_key);
    if (last_prompt_ != nullptr) submitted.last_worker = last_prompt_->worker;
    prompt_ = {.sections = prepared_.sections, .blocks = ShortHashes(prepared_.chain), .worker = {}};
  }
  if (cached) submitted.chain = prepared_.chain;
  submitted.debug = prepared_.debug;
  submitted.bytes = static_cast<int64_t>(request.token_ids_size() * sizeof(int32_t));
  submitted.priority = request.priority();
  actions->push_back(Submit{.request = std::move(submitted)});
}

Actions RequestFlow::OnNotAdmitted(absl::Status status) {
  Actions actions;
  EndWith(std::move(status), &actions);
  return actions;
}

Actions RequestFlow::OnPlaced(int choice, absl::StatusOr<Placement> placement) {
  Actions actions;
  if (end_.has_value()) return actions;  // a booking in it is released here
  ChoiceState& state = choices_[choice];
  if (state.state == State::kDone) return actions;  // it was blocked meanwhile; likewise
  if (!placement.ok()) {
    EndWith(NoWorkerAccepted(state, placement.status()), &actions);
    return actions;
  }
  BATON_CHECK(state.state == State::kWaiting);
  state.placement = *std::move(placement);
  if (!CheckBuild(choice, &actions)) return actions;
  state.state = State::kDialing;
  if (progress_.has_value()) progress_->OnPlaced(state.placement.selection.predicted, clock_.Now());
  if (!state.first_token.has_value()) state.dialed = clock_.Now();
  ++state.attempt;
  state.open = true;
  state.held = 0;
  state.asked = true;  // a call asks for its first event by itself

  Dial dial{.choice = choice,
            .attempt = state.attempt,
            .worker = state.placement.decode,
            .request = prepared_.request,
            .trace = trace_.context()};
  const fleet::Worker::Identity& worker = state.placement.decode->identity();
  outcome_.decode_worker = worker.id;
  trace_.Placed(choice, state.attempt, worker.id, state.first_token.has_value());
  dial.request.set_request_id(options_.request_id);
  dial.request.set_router_id(options_.router_id);
  *dial.request.mutable_fingerprint() = worker.fingerprint;
  dial.request.mutable_sampling()->set_seed(prepared_.seed + choice);
  dial.request.mutable_output()->set_token_ids(true);
  dial.request.set_choice(choice);
  dial.request.set_prompt_logprobs_sent(prompt_logprobs_sent_);
  if (prepared_.open_ended) BoundByMemory(*state.placement.decode, state.sent.size(), &dial.request);
  if (!state.sent.empty()) {
    dial.request.mutable_token_ids()->Add(state.sent.begin(), state.sent.end());
    dial.request.set_resumed_tokens(static_cast<uint32_t>(state.sent.size()));
  }
  const fleet::Worker* const peer = state.placement.fetch_from.get();
  const auto name_peer = [&](const fleet::Worker::Identity& to, baton::fleet::v1::PeerPrefix* hint) {
    if (!to.peer_fetch || to.address == peer->identity().address) return;
    hint->set_worker(peer->identity().id);
    hint->set_address(peer->identity().address);
    hint->set_blocks(static_cast<uint32_t>(state.placement.selection.fetch_blocks));
  };
  for (const auto& prefill : state.placement.prefill) {
    baton::fleet::v1::PrefillTarget* target = dial.request.add_prefill();
    target->set_worker(prefill->identity().id);
    target->set_address(prefill->identity().address);
    if (peer != nullptr) name_peer(prefill->identity(), target->mutable_fetch());
  }
  if (peer != nullptr && state.placement.prefill.empty()) name_peer(worker, dial.request.mutable_fetch());
  actions.push_back(std::move(dial));
  return actions;
}

Actions RequestFlow::OnDecodeEvent(int choice, int attempt, baton::fleet::v1::DecodeEvent event) {
  Actions actions;
  if (end_.has_value()) return actions;
  ChoiceState& state = choices_[choice];
  if (state.attempt != attempt) return actions;
  state.asked = false;
  if (state.state == State::kDone || state.state == State::kJudging) {  // after Finished: not wanted
    actions.push_back(HangUp{choice});
    return actions;
  }
  const State needed = event.has_accepted() ? State::kDialing : State::kRunning;
  if (event.event_case() == baton::fleet::v1::DecodeEvent::EVENT_NOT_SET || state.state != needed) {
    EndWith(absl::InternalError(fmt::format("decode worker {} sent event {} out of turn",
                                            state.placement.decode->identity().id,
                                            static_cast<int>(event.event_case()))),
            &actions);
    return actions;
  }
  if (event.has_accepted()) {
    account_.Accepted(choice, event.accepted().cached_tokens());
    OnAccepted(choice, &actions);
  } else if (event.has_progress()) {
    TellProgress(choice, std::move(*event.mutable_progress()), &actions);
    AskForEvent(choice, &actions);
  } else if (event.has_delta()) {
    if (event.has_opening()) {
      state.opening = std::move(*event.mutable_opening());
      account_.Opened(choice, PromptReportOf(state.opening.usage()));
    }
    account_.Received(choice, event.delta().tokens(), event.thinking_tokens());
    account_.Drafted(choice, attempt, event.drafted_tokens(), event.accepted_tokens());
    OnDelta(choice, std::move(*event.mutable_delta()), &actions);
  } else {
    OnFinished(choice, std::move(*event.mutable_finished()), event.steps(), &actions);
  }
  return actions;
}

void RequestFlow::OnAccepted(int choice, Actions* actions) {
  ChoiceState& state = choices_[choice];
  if (!CheckBuild(choice, actions)) return;  // another choice was faster, on workers of another build
  state.state = State::kRunning;
  state.lost = 0;
  state.placement.booking.Accepted();
  if (!started_) {
    build_ = prepared_.model->BuildWith(state.placement.decode->identity().answer_digest);
    probe().PromptTokens(prepared_.request.token_ids_size());
    probe().AnsweredBy(build_);
    trace_.Accepted(build_);
    SendStarted(actions);
  }
  AskForEvent(choice, actions);
}

bool RequestFlow::CheckBuild(int choice, Actions* actions) {
  const std::string& needed = started_ ? build_ : prepared_.build;
  if (needed.empty()) return true;
  const std::string serves =
      prepared_.model->BuildWith(choices_[choice].placement.decode->identity().answer_digest);
  if (serves == needed) return true;
  EndWith(
      !started_ || !prepared_.build.empty()
          ? BuildNotServed(serves)
          : rpc::WithReason(absl::UnavailableError("the answer began with a build that no worker serves any "
                                                   "more; retry"),
                            v1::REASON_WORKER_LOST),
      actions);
  return false;
}

void RequestFlow::SendStarted(Actions* actions) {
  started_ = true;
  v1::GenerateResponse response;
  v1::Started* started = response.mutable_started();
  started->set_request_id(options_.request_id);
  started->set_model(prepared_.model->name);
  started->set_seed(prepared_.seed);
  started->set_prompt_tokens(prepared_.request.token_ids_size());
  if (prepared_.context.ByteSizeLong() > 0) *started->mutable_context() = prepared_.context;
  started->set_output_format(prepared_.request.answer_format().name());
  started->set_build(build_);
  Send({.response = std::move(response)}, actions);
}

void RequestFlow::AskForEvent(int choice, Actions* actions) {
  ChoiceState& state = choices_[choice];
  if (state.asked || state.held >= kHeldEvents) return;
  if (state.state == State::kRunning && state.moderated != nullptr && state.moderated->gate.Full()) return;
  state.asked = true;
  actions->push_back(ReadNext{choice});
}

void RequestFlow::OnDelta(int choice, v1::Delta delta, Actions* actions) {
  ChoiceState& state = choices_[choice];
  const absl::Time now = clock_.Now();
  if (delta.tokens() > 0 && !(CheckPromptTold(actions) && CheckTraced(delta, actions))) return;
  if (delta.tokens() > 0 || delta.prompt_logprobs().empty()) EndProgress(actions);
  if (delta.tokens() > 0) {
    state.placement.booking.FirstToken(now);
    if (!state.first_token.has_value()) {
      state.first_token = now;
      state.placement.FirstToken(now - state.dialed);
      if (!first_token_seen_) {
        outcome_.ttft = now - options_.arrival;
        probe().FirstToken(*outcome_.ttft);
      }
      first_token_seen_ = true;
    } else {
      probe().MoreTokens(now - state.last_token, delta.tokens());
    }
    state.last_token = now;
    state.tokens += delta.tokens();
    probe().AnswerTokens(delta.tokens());
  }
  state.sent.insert(state.sent.end(), delta.token_ids().begin(), delta.token_ids().end());
  prompt_logprobs_sent_ += static_cast<uint32_t>(delta.prompt_logprobs_size());
  delta.set_choice(choice);
  if (Moderated* const moderated = state.moderated.get(); moderated != nullptr) {
    std::string text;
    if (moderated->tokens.has_value()) {
      for (const int32_t id : delta.token_ids()) text += moderated->tokens->Push(TokenId(id));
    } else {
      text = moderation::TextOf(delta);
    }
    if (!prepared_.token_ids) delta.clear_token_ids();
    if (prepared_.moderation->policy == moderation::Policy::kBlock) {
      if (!moderated->held_since.has_value()) moderated->held_since = now;
      const bool pending = moderated->tokens.has_value() && moderated->tokens->pending();
      moderated->gate.Add(std::move(delta), text, pending);
    } else {
      moderated->gate.AddText(text);
      SendDelta(choice, std::move(delta), actions);
    }
    Moderate(choice, actions);
  } else {
    if (!prepared_.token_ids) delta.clear_token_ids();
    SendDelta(choice, std::move(delta), actions);
  }
  AskForEvent(choice, actions);
}

void RequestFlow::SendDelta(int choice, v1::Delta delta, Actions* actions) {
  ChoiceState& state = choices_[choice];
  v1::GenerateResponse response;
  *response.mutable_delta() = std::move(delta);
  ++state.held;
  Send({.response = std::move(response), .choice = choice, .attempt = state.attempt}, actions);
}

void RequestFlow::OnFinished(int choice, v1::Finished finished, const baton::fleet::v1::StepMeans& steps,
                             Actions* actions) {
  if (!CheckPromptTold(actions)) return;
  EndProgress(actions);  // of a prompt without an answer
  ChoiceState& state = choices_[choice];
  if (prepared_.fills_context && finished.reason() == v1::FINISH_REASON_LENGTH) {
    finished.set_reason(v1::FINISH_REASON_CONTEXT_FULL);
  }
  account_.Finished(choice, PromptReportOf(finished.usage()), finished.usage().thinking_tokens());
  account_.Drafted(choice, state.attempt, finished.usage().drafted_tokens(),
                   finished.usage().accepted_tokens());
  Complete(choice, &finished);
  state.placement.Finished(&finished, steps);
  state.state = State::kJudging;
  state.placement.booking.Release();
  if (!state.asked) actions->push_back(ReadNext{choice});  // the end of the call, so that it can go
  state.asked = true;
  if (state.moderated == nullptr) return EndChoice(choice, std::move(finished), actions);
  Moderated& moderated = *state.moderated;
  if (moderated.tokens.has_value()) moderated.gate.AddText(moderated.tokens->Flush());
  moderated.gate.End();
  moderated.ending = std::move(finished);
  Moderate(choice, actions);
}

void RequestFlow::EndChoice(int choice, v1::Finished finished, Actions* actions) {
  ChoiceState& state = choices_[choice];
  finished.set_choice(choice);
  if (state.moderated != nullptr || prompt_moderated_ != nullptr) TellModeration(choice, &finished);
  if (choice == 0) finished.mutable_warnings()->Add(prepared_.hints.begin(), prepared_.hints.end());
  outcome_.reasons.push_back(finished.reason());
  state.state = State::kDone;
  state.done = true;
  v1::GenerateResponse response;
  *response.mutable_finished() = std::move(finished);
  Send({.response = std::move(response)}, actions);
}

Actions RequestFlow::OnDecodeEnd(int choice, int attempt, const absl::Status& status) {
  Actions actions;
  if (end_.has_value()) return actions;
  ChoiceState& state = choices_[choice];
  if (state.attempt != attempt) return actions;
  state.open = false;
  if (state.state == State::kDone || state.state == State::kJudging) return actions;
  if (status.ok()) {
    EndWith(absl::InternalError(fmt::format("decode worker {} ended after {} tokens without saying why",
                                            state.placement.decode->identity().id, state.tokens)),
            &actions);
  } else if (absl::IsDeadlineExceeded(status)) {
    EndWith(absl::DeadlineExceededError(fmt::format("the deadline passed after {} tokens", state.tokens)),
            &actions);
  } else if (state.state == State::kRunning && WorkerLost(status)) {
    LostMidAnswer(choice, status, &actions);
  } else if (state.state == State::kRunning) {
    EndWith(Named(state.placement.decode->identity().id, status), &actions);
  } else if (absl::IsResourceExhausted(status)) {
    probe().WorkerRefused();
    state.state = State::kWaiting;
    state.placement.booking.Refused(clock_.Now());
    trace_.Requeued(choice);
    actions.push_back(Requeue{choice, state.avoid, state.tokens > 0});
  } else if (WorkerLost(status)) {
    LostBeforeAccepted(choice, status, &actions);
  } else {
    EndWith(status, &actions);
  }
  return actions;
}

void RequestFlow::LostBeforeAccepted(int choice, const absl::Status& status, Actions* actions) {
  ChoiceState& state = choices_[choice];
  probe().WorkerLost(false);
  state.avoid.push_back(state.placement.decode->identity().incarnation);
  // The client of a begun answer hears how its worker was lost, not which attempts followed.
  if (state.tokens == 0 || state.last_loss.ok()) {
    state.last_loss = Named(state.placement.decode->identity().id, status);
  }
  if (++state.lost >= options_.max_attempts) {
    EndWith(NoWorkerAccepted(
                state, absl::UnavailableError(fmt::format(
                           "the request was placed {} times, and each time its decode worker failed before "
                           "accepting it; retry",
                           state.lost))),
            actions);
    return;
  }
  state.state = State::kWaiting;
  trace_.Requeued(choice);
  state.placement.booking.Release();
  actions->push_back(Requeue{choice, state.avoid, state.tokens > 0});
}

void RequestFlow::LostMidAnswer(int choice, const absl::Status& status, Actions* actions) {
  ChoiceState& state = choices_[choice];
  probe().WorkerLost(true);
  state.last_loss = absl::UnavailableError(fmt::format(
      "decode worker {} was lost after {} tokens; retry{}", state.placement.decode->identity().id,
      state.tokens, OfTheWire(status) ? "" : fmt::format(" ({})", std::string(status.message()))));
  // A worker that counts tokens without naming them leaves nothing to go on from.
  const bool known = static_cast<int64_t>(state.sent.size()) == state.tokens;
  if (!known || state.migrations >= options_.max_migrations) {
    EndWith(state.last_loss, actions);
    return;
  }
  ++state.migrations;
  ++outcome_.migrations;
  // Workers that failed before may be back.
  state.avoid = {state.placement.decode->identity().incarnation};
  state.state = State::kWaiting;
  trace_.Requeued(choice);
  state.placement.booking.Release();
  actions->push_back(Requeue{choice, state.avoid, state.tokens > 0});
}

absl::Status RequestFlow::NoWorkerAccepted(const ChoiceState& choice, const absl::Status& otherwise) {
  if (choice.last_loss.ok() || !absl::IsUnavailable(otherwise)) return otherwise;
  if (absl::IsFailedPrecondition(choice.last_loss)) return choice.last_loss;
  absl::Status status = absl::UnavailableError(
      fmt::format("{} ({})", std::string(otherwise.message()), std::string(choice.last_loss.message())));
  if (const auto delay = rpc::RetryDelay(otherwise)) status = rpc::WithRetryDelay(std::move(status), *delay);
  return status;
}

Actions RequestFlow::OnWritten(bool ok) {
  Actions actions;
  BATON_CHECK(writing_);
  writing_ = false;
  const int choice = outbox_.front().choice;
  const int attempt = outbox_.front().attempt;
  outbox_.pop_front();
  if (!ok) EndWith(absl::CancelledError("the client went away"), &actions);
  if (!end_.has_value()) {
    // The call that it came by may be gone, and the one that goes on has its own read out.
    if (choice >= 0 && choices_[choice].state == State::kRunning && choices_[choice].attempt == attempt) {
      --choices_[choice].held;
      AskForEvent(choice, &actions);
    }
    if (!outbox_.empty()) {
      WriteFront(&actions);
    }
  }
  FinishIfDone(&actions);
  return actions;
}

Actions RequestFlow::OnMaybeStalled() {
  Actions actions;
  if (!writing_ || broken_ || clock_.Now() - write_began_ < options_.client_stall) return actions;
  broken_ = true;
  probe().ClientStalled();
  const absl::Status stalled = StalledError(options_.client_stall);
  EndWith(stalled, &actions);
  actions.push_back(Break{stalled});
  return actions;
}

Actions RequestFlow::OnCancelled() {
  Actions actions;
  EndWith(EndsByDeadline(clock_.Now(), options_.deadline) ? absl::DeadlineExceededError("the deadline passed")
                                                          : absl::CancelledError("the client went away"),
          &actions);
  return actions;
}

Actions RequestFlow::OnDrain() {
  Actions actions;
  EndWith(DrainingError(), &actions);
  return actions;
}

void RequestFlow::Send(Outgoing outgoing, Actions* actions) {
  outbox_.push_back(std::move(outgoing));
  if (!writing_) WriteFront(actions);
}

void RequestFlow::WriteFront(Actions* actions) {
  writing_ = true;
  write_began_ = clock_.Now();
  if (outbox_.size() > 1 || !AllDone()) {
    actions->push_back(Write{std::move(outbox_.front().response), outbox_.size() > 1});
    return;
  }
  end_ = absl::OkStatus();
  End();
  actions->push_back(WriteLast{std::move(outbox_.front().response), Used()});
}

bool RequestFlow::AllDone() const {
  return !choices_.empty() && std::all_of(choices_.begin(), choices_.end(), [](const ChoiceState& choice) {
    return choice.state == State::kDone;
  });
}

bool RequestFlow::whole() const {
  return !choices_.empty() && std::ranges::all_of(choices_, &ChoiceState::done);
}

void RequestFlow::End() {
  finished_ = true;
  trace_.Ended(*end_, account_, outcome_.reasons);
  if (!options_.internal) probe().RequestEnded(end_->code(), clock_.Now() - options_.arrival);
}

void RequestFlow::EndWith(absl::Status status, Actions* actions) {
  if (end_.has_value()) return;
  end_ = std::move(status);
  actions->push_back(Withdraw{});
  if (judging_ > 0) actions->push_back(StopJudging{});
  for (size_t i = 0; i < choices_.size(); ++i) {
    ChoiceState& state = choices_[i];
    if (state.open) actions->push_back(HangUp{static_cast<int>(i)});
    state.state = State::kDone;
    state.placement.booking.Release();
  }
  const size_t written = writing_ ? 1 : 0;
  while (outbox_.size() > written) {
    unsent_.push_back(std::move(outbox_[written].response));
    outbox_.erase(outbox_.begin() + static_cast<ptrdiff_t>(written));
  }
  FinishIfDone(actions);
}

void RequestFlow::FinishIfDone(Actions* actions) {
  if (finished_ || writing_) return;
  if (!end_.has_value()) {
    if (!AllDone() || !outbox_.empty()) return;
    end_ = absl::OkStatus();
  }
  End();
  actions->push_back(Finish{*end_, Used()});
}

}  // namespace baton::router
