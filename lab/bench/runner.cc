#include "lab/bench/runner.h"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/mailbox.h"

namespace baton::lab::bench {
namespace {

// Between looks at the interrupt and calls of tick.
constexpr absl::Duration kTick = absl::Milliseconds(100);

// A conversation that has begun.
struct Talk {
  Conversation plan;
  size_t turn = 0;
  // Everything said so far.
  std::vector<int32_t> tokens;
};

struct Due {
  absl::Time when;
  // Ties in the order of planning, so that a run is the same every time.
  uint64_t order;
  std::shared_ptr<Talk> talk;
  bool operator<(const Due& other) const {
    return when != other.when ? when > other.when : order > other.order;
  }
};

struct Reply {
  std::shared_ptr<Talk> talk;
  RequestRecord record;
};

class Runner {
 public:
  Runner(const RunSettings& settings, Workload& workload, LoadClient& client, const Clock& clock,
         Recorder& recorder)
      : settings_(settings), workload_(workload), client_(client), clock_(clock), recorder_(recorder) {}

  RunResult Run(const std::function<void(const RunState&)>& tick) {
    start_ = clock_.Now();
    absl::Time next_tick = start_;
    if (settings_.concurrency > 0) {
      for (int i = 0; i < settings_.concurrency; ++i) BeginNow();
    } else {
      PlanArrival();
    }
    std::optional<absl::Time> drain_until;
    while (true) {
      const absl::Time now = clock_.Now();
      if (!sending_ended_) SendDue(now);
      if (!sending_ended_ && OutOfWork(now)) sending_ended_ = true;
      if (sending_ended_ && state_.in_flight == 0) break;
      if (now >= next_tick) {
        next_tick = now + kTick;
        tick(state_);
        if (Interrupted()) {
          result_.interrupted = true;
          sending_ended_ = true;
          CutOff();
        }
      }
      if (sending_ended_) {
        if (!drain_until.has_value()) drain_until = now + settings_.drain;
        if (now >= *drain_until) CutOff();
      }
      for (Reply& reply : mailbox_->WaitAndTakeAll(TimeToWait(next_tick))) Take(std::move(reply));
    }
    tick(state_);
    result_.asked = asked_;
    return result_;
  }

 private:
  // Closed loop: the next conversation, at once.
  void BeginNow() {
    if (std::optional<Conversation> plan = workload_.Next()) {
      Plan(clock_.Now(), std::make_shared<Talk>(Talk{*std::move(plan), 0, {}}));
    }
  }

  // Open loop: one arrival is planned ahead, so that a trace of any length costs no memory.
  void PlanArrival() {
    std::optional<Conversation> plan = workload_.Next();
    if (!plan.has_value()) return;
    BATON_CHECK(plan->arrival.has_value());
    const absl::Time when = start_ + *plan->arrival;
    auto talk = std::make_shared<Talk>(Talk{*std::move(plan), 0, {}});
    arrival_ = talk.get();
    Plan(when, std::move(talk));
  }

  void Plan(absl::Time when, std::shared_ptr<Talk> talk) { due_.push({when, planned_++, std::move(talk)}); }

  void SendDue(absl::Time now) {
    while (!due_.empty() && due_.top().when <= now && !LimitReached(now)) {
      const Due due = due_.top();
      due_.pop();
      if (due.talk.get() == arrival_) PlanArrival();
      Send(due.when, due.talk);
    }
  }

  bool LimitReached(absl::Time now) const {
    return (settings_.requests > 0 && state_.sent >= settings_.requests) ||
           now - start_ >= settings_.duration;
  }
  bool OutOfWork(absl::Time now) const {
    // A conversation in flight may have further turns.
    return LimitReached(now) || (due_.empty() && state_.in_flight == 0);
  }

  void Send(absl::Time intended, std::shared_ptr<Talk> talk) {
    const Turn& turn = talk->plan.turns[talk->turn];
    const int64_t total =
        static_cast<int64_t>(talk->tokens.size()) + TokensIn(turn.segments) + turn.output_tokens;
    const bool too_long = total > settings_.context_tokens;
    if (too_long || state_.in_flight >= settings_.max_in_flight) {
      // The rest of the conversation goes with it.
      too_long ? recorder_.AddTooLong() : recorder_.AddOverflowed();
      ++state_.sent;
      ++state_.done;
      if (settings_.concurrency > 0) BeginNow();
      return;
    }
    for (const Segment& segment : turn.segments) {
      AppendTokens(segment, settings_.seed, settings_.vocabulary_tokens, &talk->tokens);
    }
    v1::GenerateRequest request;
    request.set_model(settings_.model);
    request.mutable_token_ids()->mutable_ids()->Add(talk->tokens.begin(), talk->tokens.end());
    *request.mutable_sampling() = settings_.sampling;
    if (!request.sampling().has_seed())
      request.mutable_sampling()->set_seed(settings_.seed + talk->plan.index);
    request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(turn.output_tokens));
    request.mutable_stop()->set_ignore_eos(settings_.ignore_eos);
    request.mutable_output()->set_token_ids(settings_.keep_answers);
    request.mutable_options()->set_debug(settings_.debug);
    if (talk->turn == 0) Note(*talk, turn);

    RequestRecord record;
    record.intended = intended;
    record.prompt_tokens = static_cast<int64_t>(talk->tokens.size());
    record.output_tokens = turn.output_tokens;
    ++state_.sent;
    ++state_.in_flight;
    client_.Start(std::move(request), settings_.timeout,
                  [mailbox = mailbox_, talk = std::move(talk), record](Outcome outcome) mutable {
                    record.outcome = std::move(outcome);
                    mailbox->PostAlways({std::move(talk), std::move(record)});
                  });
  }

  // Adds a first turn to the checksum; later turns hold answers, which are not ours.
  void Note(const Talk& talk, const Turn& turn) {
    std::string bytes(reinterpret_cast<const char*>(&asked_), sizeof(asked_));
    bytes.append(reinterpret_cast<const char*>(talk.tokens.data()), talk.tokens.size() * sizeof(int32_t));
    bytes.append(reinterpret_cast<const char*>(&turn.output_tokens), sizeof(turn.output_tokens));
    asked_ = Crc32c(bytes);
  }

  void Take(Reply reply) {
    --state_.in_flight;
    ++state_.done;
    recorder_.Add(reply.record);
    const Outcome& outcome = reply.record.outcome;
    std::shared_ptr<Talk> talk = std::move(reply.talk);
    ++talk->turn;
    if (outcome.status.ok() && talk->turn < talk->plan.turns.size()) {
      talk->tokens.insert(talk->tokens.end(), outcome.token_ids.begin(), outcome.token_ids.end());
      const absl::Time when = outcome.end + talk->plan.turns[talk->turn].think;
      Plan(when, std::move(talk));
    } else if (settings_.concurrency > 0 && !sending_ended_) {
      BeginNow();
    }
  }

  absl::Duration TimeToWait(absl::Time next_tick) const {
    absl::Time wake = next_tick;
    if (!sending_ended_) {
      if (!due_.empty()) wake = std::min(wake, due_.top().when);
      wake = std::min(wake, start_ + settings_.duration);
    }
    return std::max(absl::ZeroDuration(), wake - clock_.Now());
  }

  bool Interrupted() const {
    pollfd fd = {settings_.interrupt_fd, POLLIN, 0};
    return !result_.interrupted && settings_.interrupt_fd >= 0 && poll(&fd, 1, 0) > 0;
  }

  void CutOff() {
    recorder_.BeginCutOff();
    client_.CancelAll();
  }

  const RunSettings& settings_;
  Workload& workload_;
  LoadClient& client_;
  const Clock& clock_;
  Recorder& recorder_;
  // Shared with calls: one may post its reply while the runner leaves.
  const std::shared_ptr<Mailbox<Reply>> mailbox_ = std::make_shared<Mailbox<Reply>>(0);
  absl::Time start_;
  std::priority_queue<Due> due_;
  uint64_t planned_ = 0;
  const Talk* arrival_ = nullptr;
  bool sending_ended_ = false;
  RunState state_;
  uint32_t asked_ = 0;
  RunResult result_;
};

}  // namespace

RunResult RunLoad(const RunSettings& settings, Workload& workload, LoadClient& client, const Clock& clock,
                  Recorder& recorder, const std::function<void(const RunState&)>& tick) {
  return Runner(settings, workload, client, clock, recorder).Run(tick);
}

}  // namespace baton::lab::bench
