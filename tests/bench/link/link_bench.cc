// A window of payloads from one worker's memory into another's, over the host link and over the ucx link, in
// one run. The host link's bytes go as messages over a gRPC stream on loopback would: here they are
// serialized and parsed, and not sent, so it is shown at its best. The ucx link uses what UCX finds;
// UCX_TLS=tcp asks for TCP alone.
#include <benchmark/benchmark.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/base/mailbox.h"
#include "transfer/host_link.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_link.h"

namespace baton::transfer {
namespace {

// Chunks on their way at once.
constexpr int kWindow = 8;

// A payload of `bytes` in pieces of a block's layer.
struct Payloads {
  explicit Payloads(size_t bytes) : source(bytes, std::byte{1}), target(bytes) {
    constexpr size_t kPiece = 32 << 10;
    for (size_t at = 0; at < bytes; at += kPiece) {
      const size_t size = std::min(kPiece, bytes - at);
      from.push_back(std::span(source).subspan(at, size));
      to.push_back(std::span(target).subspan(at, size));
    }
  }
  std::vector<std::byte> source, target;
  std::vector<std::span<const std::byte>> from;
  std::vector<std::span<std::byte>> to;
};

void OverHost(benchmark::State& state) {
  Payloads payloads(static_cast<size_t>(state.range(0)));
  HostLinkSender sender;
  HostLinkReceiver receiver;
  for (auto _ : state) {
    fleet::v1::KvChunk chunk, arrived;
    if (!sender.Ship(payloads.from, chunk).ok() || !arrived.ParseFromString(chunk.SerializeAsString())) {
      state.SkipWithError("not shipped");
    }
    receiver.Receive(arrived, "", payloads.to, [&](const absl::Status& status) {
      if (!status.ok()) state.SkipWithError("not received");
    });
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void OverUcx(benchmark::State& state) {
  device::Memory* const host = &device::HostMemory();
  absl::StatusOr<Ucx> sending = OpenUcx({&host, 1}), receiving = OpenUcx({&host, 1});
  if (!sending.ok() || !receiving.ok()) {
    state.SkipWithError(std::string(sending.status().message()).c_str());
    return;
  }
  MonotonicClock clock;
  Mailbox<absl::AnyInvocable<void()>> engine(1000);
  const UcxLink::Post post = [&](absl::AnyInvocable<void()> task) {
    return engine.PostAlways(std::move(task));
  };
  const auto sender =
      *UcxLink::Create(std::move(sending->fabric), *sending->payload, clock, Incarnation(1), post, {});
  const auto receiver =
      *UcxLink::Create(std::move(receiving->fabric), *receiving->payload, clock, Incarnation(2), post, {});
  Payloads payloads(static_cast<size_t>(state.range(0)));
  int under_way = 0;
  const auto await = [&](int most) {
    while (under_way > most) {
      for (auto& task : engine.WaitAndTakeAll(absl::InfiniteDuration())) task();
    }
  };
  std::deque<fleet::v1::KvChunk> chunks;
  for (auto _ : state) {
    await(kWindow - 1);
    while (chunks.size() >= 2 * kWindow) chunks.pop_front();
    fleet::v1::KvChunk& chunk = chunks.emplace_back();
    chunk.set_incarnation(2);
    if (!sender->Ship(payloads.from, chunk).ok()) {
      state.SkipWithError("not shipped");
      break;
    }
    ++under_way;
    receiver->Receive(chunk, "127.0.0.1:1", payloads.to, [&](const absl::Status& status) {
      --under_way;
      if (!status.ok()) state.SkipWithError("not received");
    });
  }
  await(0);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(OverHost)->Arg(64 << 10)->Arg(1 << 20)->Arg(4 << 20)->UseRealTime();
BENCHMARK(OverUcx)->Arg(64 << 10)->Arg(1 << 20)->Arg(4 << 20)->UseRealTime();

}  // namespace
}  // namespace baton::transfer
