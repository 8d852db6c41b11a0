// Workers of one process that are joined by nccl links, over a NCCL with scripted failures: one engine
// thread, which is the test's, and one clock, moved by hand. A worker's address is "worker-" and its
// incarnation.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>

#include "common/base/mailbox.h"
#include "tests/fakes/fake_nccl.h"
#include "transfer/nccl/nccl_link.h"

namespace baton::transfer {

class NcclRig : public testing::Test {
 protected:
  struct Arrival {
    std::vector<std::byte> bytes;
    std::optional<absl::Status> status;
    int place = 0;  // in the order in which arrivals ended
  };

  NcclRig() { options_.pairs.join_timeout = options_.pairs.meet_timeout = absl::Seconds(5); }

  static std::string Address(uint64_t incarnation) { return fmt::format("worker-{}", incarnation); }

  std::shared_ptr<NcclLink> Make(uint64_t incarnation) {
    auto& payload = payloads_[incarnation];
    payload = std::make_unique<FakeDevicePayload>(nccl_, static_cast<int>(incarnation));
    std::shared_ptr<NcclLink> link = *NcclLink::Create(
        nccl_.Api(static_cast<int>(incarnation)), *payload, clock_, Incarnation(incarnation),
        [this, incarnation](absl::AnyInvocable<void()> task) {
          ++tasks_[incarnation];
          return engine_.PostAlways(std::move(task));
        },
        [this](const std::string& address, const Meeting& meeting, LinkSender::Answer answer) {
          ++asked_;
          const auto peer = workers_[address].lock();
          if (peer == nullptr) return answer(absl::UnavailableError("no such worker"));
          peer->Meet(meeting, std::move(answer));
        },
        options_);
    workers_[Address(incarnation)] = link;
    return link;
  }

  std::vector<std::byte> RandomBytes(size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  static protocol::Ticket TicketOf(uint64_t receiver, uint64_t id) {
    return {Incarnation(receiver), TicketId(id), 0, {}};
  }
  absl::Status TryShip(NcclLink& link, const std::vector<std::byte>& bytes, uint64_t to,
                       fleet::v1::KvChunk& chunk, uint64_t ticket = 0) {
    chunk.set_incarnation(to);
    chunk.set_ticket_id(ticket);
    const std::span<const std::byte> piece = bytes;
    return link.Ship({&piece, 1}, chunk);
  }
  fleet::v1::KvChunk Ship(NcclLink& link, const std::vector<std::byte>& bytes, uint64_t to = 2,
                          uint64_t ticket = 0) {
    fleet::v1::KvChunk chunk;
    const absl::Status shipped = TryShip(link, bytes, to, chunk, ticket);
    EXPECT_TRUE(shipped.ok()) << shipped;
    return chunk;
  }
  // `from`: empty: the sender's own address.
  void Receive(NcclLink& link, const fleet::v1::KvChunk& chunk, Arrival& arrival, std::string from = "") {
    arrival.bytes.assign(chunk.apart().bytes(), std::byte{0});
    if (from.empty()) from = Address(chunk.apart().sender());
    const std::span<std::byte> piece = arrival.bytes;
    link.Receive(chunk, from, {&piece, 1}, [this, &arrival](absl::Status status) {
      arrival.status = std::move(status);
      arrival.place = ++ended_;
    });
  }
  // One payload from end to end.
  testing::AssertionResult Moves(NcclLink& sender, NcclLink& receiver, uint64_t to, size_t size = 300) {
    const auto bytes = RandomBytes(size);
    Arrival arrival;
    fleet::v1::KvChunk chunk;
    if (const absl::Status shipped = TryShip(sender, bytes, to, chunk); !shipped.ok()) {
      return testing::AssertionFailure() << "not shipped: " << shipped;
    }
    Receive(receiver, chunk, arrival);
    if (const absl::Status status = Wait(arrival); !status.ok()) {
      return testing::AssertionFailure() << "not received: " << status;
    }
    return arrival.bytes == bytes ? testing::AssertionSuccess()
                                  : testing::AssertionFailure() << "other bytes arrived";
  }

  void RunEngine(absl::Duration wait) {
    for (auto& task : engine_.WaitAndTakeAll(wait)) task();
  }
  // The engine's loop runs until then.
  void Until(const std::function<bool()>& happened) {
    while (!happened()) RunEngine(absl::Milliseconds(1));
  }
  // True if a call of NCCL is in progress that no test blocks: it takes none of the clock's time.
  bool Calling() {
    int64_t calls = 0;
    for (const auto& [address, worker] : workers_) {
      if (const auto link = worker.lock()) calls += link->counts().calls;
    }
    return calls > nccl_.blocked();
  }
  // Lets so much time pass.
  void Pass(absl::Duration time) {
    Until([this] { return !Calling(); });
    clock_.Advance(time);
  }
  // The same as Until, and time goes on: whatever the link's thread gets to first, its patience ends.
  void LongUntil(const std::function<bool()>& happened) {
    while (!happened()) {
      if (!Calling()) clock_.Advance(absl::Seconds(1));
      RunEngine(absl::Milliseconds(5));
    }
  }
  absl::Status Wait(const Arrival& arrival) {
    Until([&] { return arrival.status.has_value(); });
    return *arrival.status;
  }
  absl::Status WaitLong(const Arrival& arrival) {
    LongUntil([&] { return arrival.status.has_value(); });
    return *arrival.status;
  }

  static constexpr uint32_t kSeed = 61;
  std::mt19937 random_{kSeed};
  FakeNccl nccl_;
  FakeClock clock_;
  Mailbox<absl::AnyInvocable<void()>> engine_{1000};
  NcclLinkOptions options_;
  int ended_ = 0;
  std::array<std::atomic<int>, 100> tasks_ = {};  // that each link posted
  int asked_ = 0;                                 // how often one worker asked another for an id
  std::map<std::string, std::weak_ptr<NcclLink>> workers_;
  std::map<uint64_t, std::unique_ptr<FakeDevicePayload>> payloads_;
  std::shared_ptr<NcclLink> sender_ = Make(1), receiver_ = Make(2);
};

}  // namespace baton::transfer
