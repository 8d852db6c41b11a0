#include "decode_service/link_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/status.h"
#include "decode_service/peer_addresses.h"
#include "spdlog/spdlog.h"

namespace baton::decode_service {
namespace {

constexpr int64_t kTestBytes = int64_t{64} << 20;

}  // namespace

// One exchange. Used on the engine thread until `ended`, and on the check's thread after that.
struct LinkCheck::Test {
  std::vector<BlockId> blocks;
  std::unique_ptr<transfer::KvReceiver> receiver;
  absl::Time first, last;
  absl::Status status;
  absl::Notification ended;  // the stream is over, and no write is in progress
};

LinkCheck::LinkCheck(LinkCheckOptions options, worker::WorkerRuntime& runtime, std::function<void()> passed)
    : options_(std::move(options)),
      runtime_(runtime),
      passed_(std::move(passed)),
      calls_(&v1::Prefill::StubInterface::async_interface::TestLink, runtime.security(),
             [&runtime](engine::Loop::Task task) { runtime.loop().PostAlways(std::move(task)); }),
      thread_([this] { Work(); }) {}

LinkCheck::~LinkCheck() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  runtime_.loop().Run([this] {
    if (running_ != nullptr) running_->End(absl::CancelledError("the worker is leaving"));
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

absl::StatusOr<double> LinkCheck::Measure(const std::string& peer) {
  BATON_RETURN_IF_ERROR(Exchange(peer).status());
  return Exchange(peer);
}

absl::StatusOr<double> LinkCheck::Exchange(const std::string& peer) {
  Test test;
  absl::Status started = absl::CancelledError("the worker is leaving");
  engine::Loop& loop = runtime_.loop();
  loop.Run([&] { started = Start(peer, test); });
  BATON_RETURN_IF_ERROR(started);
  // Every write ends, at the latest when the link gives its peer up.
  test.ended.WaitForNotification();
  int64_t bytes = 0;
  loop.Run([&] {
    running_ = nullptr;
    bytes = test.receiver->intake().received_bytes();
    test.receiver.reset();
    runtime_.engine().pool().Release(test.blocks);
  });
  BATON_RETURN_IF_ERROR(test.status);
  return static_cast<double>(bytes) / std::max(1e-9, absl::ToDoubleSeconds(test.last - test.first));
}

absl::Status LinkCheck::Start(const std::string& peer, Test& test) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the worker is leaving");
  }
  engine::Engine& engine = runtime_.engine();
  const int64_t most = std::max<int64_t>(1, kTestBytes / engine.store().layout().block_bytes());
  BATON_ASSIGN_OR_RETURN(test.blocks,
                         engine.pool().Allocate(std::clamp<int64_t>(engine.pool().available() / 4, 1, most)));
  transfer::Ticket ticket{runtime_.incarnation(), TicketId(next_ticket_++), 0, {}};
  for (const BlockId block : test.blocks) ticket.generations.push_back(engine.pool().generation(block));
  v1::TestLinkRequest request;
  *request.mutable_ticket() = ticket.ToProto();
  *request.mutable_fingerprint() = runtime_.hub().info().fingerprint();
  const auto complete = [&test] {
    const transfer::Intake& intake = test.receiver->intake();
    if (intake.state() == transfer::Intake::State::kCommitted) return absl::OkStatus();
    return absl::InternalError(
        fmt::format("{} of {} blocks came", intake.received_blocks(), test.blocks.size()));
  };
  test.receiver = std::make_unique<transfer::KvReceiver>(
      std::move(ticket), test.blocks, engine.store(), runtime_.link().receiver(),
      transfer::KvReceiver::Callbacks{.written = [this, &test] { test.last = runtime_.clock().Now(); },
                                      .complete = complete,
                                      .decided = nullptr,
                                      .ended =
                                          [&test](absl::Status status) {
                                            test.status = std::move(status);
                                            test.ended.Notify();
                                          }});
  running_ = test.receiver.get();
  test.first = runtime_.clock().Now();
  running_->Start<v1::KvChunk>(
      [receiver = running_](const std::shared_ptr<const v1::KvChunk>& chunk) {
        receiver->Accept(*chunk, chunk);
        return absl::OkStatus();
      },
      [&](rpc::EventCallbacks<v1::KvChunk> callbacks) {
        return calls_.Call(peer, std::move(request), absl::Now() + options_.patience, std::move(callbacks));
      },
      peer);
  return absl::OkStatus();
}

}  // namespace baton::decode_service
