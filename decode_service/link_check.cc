#include "decode_service/link_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/status.h"
#include "decode_service/peer_addresses.h"
#include "spdlog/spdlog.h"
#include "transfer/nccl/nccl_log.h"

namespace baton::decode_service {
namespace {

// Payload of one exchange, at most: what a prefill worker takes.
constexpr int64_t kTestBytes = int64_t{64} << 20;

}  // namespace

// One stream. Engine thread.
struct LinkCheck::Exchange {
  std::vector<BlockId> blocks;
  std::unique_ptr<transfer::KvReceiver> receiver;
};

// Streams to one peer, as long as more is wanted. Engine thread, but for `ended`, and for what is read after
// it.
struct LinkCheck::Run {
  std::string address;
  int64_t bytes_wanted = 0;
  absl::Time deadline;
  std::list<Exchange> exchanges;  // in progress
  int64_t bytes = 0;
  absl::Time first, last;
  absl::Status status;
  bool closed = false;       // begins no more
  absl::Notification ended;  // no stream is in progress
};

LinkCheck::LinkCheck(LinkCheckOptions options, worker::WorkerRuntime& runtime, std::function<void()> passed)
    : options_(std::move(options)),
      runtime_(runtime),
      passed_(std::move(passed)),
      calls_(&fleet::v1::Prefill::StubInterface::async_interface::TestLink, runtime.peer_options(),
             [&runtime](engine::Loop::Task task) { runtime.loop().PostAlways(std::move(task)); }),
      thread_([this] { Work(); }) {}

LinkCheck::~LinkCheck() {
  Stop();
  for (const auto& run : runs_) {
    for (const Exchange& exchange : run->exchanges) runtime_.engine().pool().Release(exchange.blocks);
  }
}

void LinkCheck::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  runtime_.loop().Run([this] {
    for (const auto& run : runs_) Close(*run, absl::CancelledError("the worker is leaving"));
  });
  thread_.join();
}

void LinkCheck::Work() {
  while (true) {
    for (const std::string& peer : options_.peers) {
      // Each address by itself: a test of a name would end at any of its workers, and the question for its
      // link's meeting at another one.
      for (const std::string& address : PeerAddresses(peer)) {
        if (Passes(peer, address)) {
          passed_();
          return;
        }
        absl::MutexLock lock(&mutex_);
        if (stopping_) return;
      }
    }
    absl::MutexLock lock(&mutex_);
    const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopped), options_.pause)) return;
  }
}

bool LinkCheck::Passes(const std::string& peer, const std::string& address) {
  const absl::StatusOr<double> rate = Measure(address);
  if (rate.ok()) runtime_.link().probe().Measured(peer, *rate);
  const double gbps = rate.ok() ? *rate / 1e9 : 0;
  const std::string_view link = runtime_.link().receiver().name();
  if (rate.ok() && gbps >= options_.floor_gbps) {
    spdlog::info("the {} link to {} carries {:.2f} GB/s (floor {:.2f}): ready", link, address, gbps,
                 options_.floor_gbps);
    return true;
  }
  const std::string why = rate.ok()
                              ? fmt::format(
                                    "carries {:.2f} GB/s, the floor is {:.2f}: look at what lies "
                                    "between the two, or lower --link-floor-gbps",
                                    gbps, options_.floor_gbps)
                              : fmt::format("has failed its test: {}", std::string(rate.status().message()));
  absl::MutexLock lock(&mutex_);
  // Once for each reason: a peer that is not there yet would fill the log.
  if (!stopping_ && why != std::exchange(said_[address], why)) {
    spdlog::warn("not ready: the {} link to {} {}", link, address, why);
  }
  return false;
}

absl::StatusOr<double> LinkCheck::Measure(const std::string& address) {
  const absl::Time deadline = runtime_.clock().Now() + options_.patience;
  BATON_RETURN_IF_ERROR(Move(address, 1, 1, deadline).status());
  absl::Status allowed;
  runtime_.loop().Run([&] { allowed = runtime_.link().CheckTransport(options_.transport); });
  BATON_RETURN_IF_ERROR(allowed);
  return Move(address, options_.bytes, kInFlight, deadline);
}

absl::StatusOr<double> LinkCheck::Move(const std::string& address, int64_t bytes, int streams,
                                       absl::Time deadline) {
  Run* run = nullptr;
  engine::Loop& loop = runtime_.loop();
  loop.Run([&] {
    // Drops runs that were left behind and have ended by now.
    std::erase_if(runs_, [](const auto& other) { return other->exchanges.empty(); });
    run = runs_.emplace_back(std::make_unique<Run>()).get();
    run->address = address;
    run->bytes_wanted = bytes;
    run->deadline = deadline;
    run->first = run->last = runtime_.clock().Now();
    for (int i = 0; i < streams; ++i) {
      absl::Status started = Start(*run);
      if (!started.ok() && run->exchanges.empty()) Close(*run, started);
      if (!started.ok()) break;
    }
  });
  if (run == nullptr) return absl::CancelledError("the worker is leaving");
  if (!run->ended.WaitForNotificationWithTimeout(deadline - runtime_.clock().Now())) {
    loop.Run([&] {
      Close(*run, absl::DeadlineExceededError(
                      fmt::format("it has not ended within {}", absl::FormatDuration(options_.patience))));
    });
  }
  absl::StatusOr<double> rate = absl::CancelledError("the worker is leaving");
  loop.Run([&] {
    rate = static_cast<double>(run->bytes) / std::max(1e-9, absl::ToDoubleSeconds(run->last - run->first));
    if (!run->status.ok()) rate = run->status;
  });
  return rate;
}

absl::Status LinkCheck::Start(Run& run) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the worker is leaving");
  }
  engine::Engine& engine = runtime_.engine();
  const int64_t most = std::max<int64_t>(1, kTestBytes / engine.store().layout().block_bytes());
  BATON_ASSIGN_OR_RETURN(
      std::vector<BlockId> blocks,
      engine.pool().Allocate(std::clamp<int64_t>(engine.pool().available() / (2 * kInFlight), 1, most)));
  Exchange& exchange = run.exchanges.emplace_back();
  exchange.blocks = std::move(blocks);
  protocol::Ticket ticket{runtime_.incarnation(), TicketId(next_ticket_++), 0, {}};
  for (const BlockId block : exchange.blocks) ticket.generations.push_back(engine.pool().generation(block));
  fleet::v1::TestLinkRequest request;
  *request.mutable_ticket() = ticket.ToProto();
  *request.mutable_fingerprint() = runtime_.hub().info().fingerprint();
  const auto complete = [&exchange] {
    const transfer::Intake& intake = exchange.receiver->intake();
    if (intake.state() == transfer::Intake::State::kCommitted) return absl::OkStatus();
    return absl::InternalError(
        fmt::format("{} of {} blocks came", intake.received_blocks(), exchange.blocks.size()));
  };
  exchange.receiver = std::make_unique<transfer::KvReceiver>(
      std::move(ticket), exchange.blocks, engine.store(), runtime_.link().receiver(),
      transfer::KvReceiver::Callbacks{.written = [this, &run] { run.last = runtime_.clock().Now(); },
                                      .complete = complete,
                                      .decided = nullptr,
                                      .ended =
                                          [this, &run, &exchange](absl::Status status) {
                                            // Not inside its own callback. A loop that has stopped leaves it
                                            // to the destructor.
                                            runtime_.loop().PostAlways(
                                                [this, &run, &exchange, status = std::move(status)] {
                                                  OnEnded(run, exchange, status);
                                                });
                                          }});
  exchange.receiver->Start<fleet::v1::KvChunk>(
      [receiver = exchange.receiver.get()](const std::shared_ptr<const fleet::v1::KvChunk>& chunk) {
        receiver->Accept(*chunk, chunk);
        return absl::OkStatus();
      },
      [&](rpc::EventCallbacks<fleet::v1::KvChunk> callbacks) {
        return calls_.Call(run.address, std::move(request),
                           absl::Now() + (run.deadline - runtime_.clock().Now()), std::move(callbacks));
      },
      run.address);
  return absl::OkStatus();
}

void LinkCheck::OnEnded(Run& run, Exchange& exchange, const absl::Status& status) {
  run.bytes += exchange.receiver->intake().received_bytes();
  runtime_.engine().pool().Release(exchange.blocks);
  run.exchanges.remove_if([&](const Exchange& other) { return &other == &exchange; });
  if (!status.ok()) {
    Close(run, status);
    return;
  }
  if (!run.closed && run.bytes < run.bytes_wanted && run.last - run.first < options_.time) {
    if (Start(run).ok()) return;
  }
  if (run.exchanges.empty()) Close(run, absl::OkStatus());
}

void LinkCheck::Close(Run& run, const absl::Status& why) {
  if (!std::exchange(run.closed, true)) {
    run.status = why;
    for (Exchange& exchange : run.exchanges) exchange.receiver->End(why);
  }
  if (!run.ended.HasBeenNotified()) run.ended.Notify();
}

}  // namespace baton::decode_service
