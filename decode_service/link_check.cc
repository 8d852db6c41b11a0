#include "decode_service/link_check.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace baton::decode_service {
namespace {

constexpr int64_t kTestBytes = int64_t{64} << 20;

}  // namespace

// One exchange: what the engine thread and the reader share.
struct LinkCheck::Test {
  std::vector<BlockId> blocks;
  std::unique_ptr<transfer::Intake> intake;
  v1::TestLinkRequest request;
  std::vector<std::unique_ptr<v1::KvChunk>> chunks;  // live until they are written

  absl::Mutex mutex;
  size_t written ABSL_GUARDED_BY(mutex) = 0;
  absl::Status status ABSL_GUARDED_BY(mutex);
  absl::Time first ABSL_GUARDED_BY(mutex), last ABSL_GUARDED_BY(mutex);
};

LinkCheck::LinkCheck(LinkCheckOptions options, worker::Host& host, std::function<void()> passed)
    : options_(std::move(options)), host_(host), passed_(std::move(passed)), thread_([this] { Work(); }) {}

LinkCheck::~LinkCheck() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }
  thread_.join();
}

void LinkCheck::Work() {
  std::vector<std::string> said(options_.peers.size());
  while (true) {
    for (size_t i = 0; i < options_.peers.size(); ++i) {
      const std::string& peer = options_.peers[i];
      const auto stub = v1::Prefill::NewStub(rpc::MakeChannel(peer, {}, &host_.security()));
      const absl::StatusOr<double> rate = Measure(*stub);
      if (rate.ok()) host_.link().probe().Measured(peer, *rate);
      const double gbps = rate.ok() ? *rate / 1e9 : 0;
      const std::string_view link = host_.link().receiver().name();
      if (rate.ok() && gbps >= options_.floor_gbps) {
        spdlog::info("the {} link to {} carries {:.2f} GB/s (floor {:.2f}): ready", link, peer, gbps,
                     options_.floor_gbps);
        passed_();
        return;
      }
      const std::string why =
          rate.ok() ? fmt::format(
                          "carries {:.2f} GB/s, the floor is {:.2f}: look at what lies "
                          "between the two, or lower --link-floor-gbps",
                          gbps, options_.floor_gbps)
                    : fmt::format("has failed its test: {}", std::string(rate.status().message()));
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      // Once for each reason: a peer that is not there yet would fill the log.
      if (why != std::exchange(said[i], why))
        spdlog::warn("not ready: the {} link to {} {}", link, peer, why);
    }
    absl::MutexLock lock(&mutex_);
    const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopped), options_.pause)) return;
  }
}

absl::StatusOr<double> LinkCheck::Measure(v1::Prefill::Stub& stub) {
  BATON_RETURN_IF_ERROR(Exchange(stub).status());
  return Exchange(stub);
}

absl::StatusOr<double> LinkCheck::Exchange(v1::Prefill::Stub& stub) {
  Test test;
  absl::Status begun = absl::CancelledError("the worker is leaving");
  engine::Loop& loop = host_.loop();
  loop.Run([&] {
    engine::Engine& engine = host_.engine();
    const int64_t most = std::max<int64_t>(1, kTestBytes / engine.store().layout().block_bytes());
    auto blocks = engine.pool().Allocate(std::clamp<int64_t>(engine.pool().available() / 4, 1, most));
    begun = blocks.status();
    if (!begun.ok()) return;
    test.blocks = *std::move(blocks);
    transfer::Ticket ticket{host_.incarnation(), TicketId(next_ticket_++), 0, {}};
    for (const BlockId block : test.blocks) ticket.generations.push_back(engine.pool().generation(block));
    *test.request.mutable_ticket() = ticket.ToProto();
    test.intake = std::make_unique<transfer::Intake>(std::move(ticket), test.blocks, engine.store(),
                                                     host_.link().receiver());
    test.intake->Request();
  });
  BATON_RETURN_IF_ERROR(begun);
  *test.request.mutable_fingerprint() = host_.hub().info().fingerprint();
  absl::Status status = Read(stub, test);
  {
    // Every write ends, at the latest when the link gives its peer up.
    absl::MutexLock lock(&test.mutex);
    const auto all = [&test]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(test.mutex) {
      return test.written == test.chunks.size();
    };
    test.mutex.Await(absl::Condition(&all));
    if (status.ok()) status = test.status;
  }
  int64_t bytes = 0;
  loop.Run([&] {
    if (status.ok() && test.intake->state() != transfer::Intake::State::kCommitted) {
      status = absl::InternalError(
          fmt::format("{} of {} blocks came", test.intake->received_blocks(), test.blocks.size()));
    }
    bytes = test.intake->received_bytes();
    test.intake->Release();
    host_.engine().pool().Release(test.blocks);
  });
  BATON_RETURN_IF_ERROR(status);
  absl::MutexLock lock(&test.mutex);
  return static_cast<double>(bytes) / std::max(1e-9, absl::ToDoubleSeconds(test.last - test.first));
}

absl::Status LinkCheck::Read(v1::Prefill::Stub& stub, Test& test) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.patience));
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the worker is leaving");
    running_ = &context;
  }
  {
    absl::MutexLock lock(&test.mutex);
    test.first = host_.clock().Now();
  }
  const auto reader = stub.TestLink(&context, test.request);
  for (auto chunk = std::make_unique<v1::KvChunk>(); reader->Read(chunk.get());
       chunk = std::make_unique<v1::KvChunk>()) {
    const v1::KvChunk& here = *chunk;
    test.chunks.push_back(std::move(chunk));
    host_.loop().Run([&] {
      test.intake->Accept(here, [this, &test](const absl::Status& written) {
        absl::MutexLock lock(&test.mutex);
        ++test.written;
        test.last = host_.clock().Now();
        if (!written.ok() && test.status.ok()) test.status = written;
      });
    });
  }
  const absl::Status status = rpc::FromGrpc(reader->Finish());
  absl::MutexLock lock(&mutex_);
  running_ = nullptr;
  return status;
}

}  // namespace baton::decode_service
