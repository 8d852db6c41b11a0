// How fast the nccl link is, beside what the machine can do, in one run: packing a payload and unpacking it
// beside a device copy, and chunks from one process to another beside the same copy. With two GPUs the
// receiver takes the second one, and cudaMemcpyPeer is the limit; with one, NCCL takes the two processes for
// two machines (NCCL_HOSTID) and goes over loopback sockets: what that shows is that the link adds little to
// NCCL's own time, and nothing about NVLink.
//
//   gpu_link_bench [--quick]
//
// The program starts itself a second time as the receiver (--receive); messages go there by a pipe, and one
// byte comes back for each payload that was checked and scattered, or the name of a meeting whose id the
// receiver asks for.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "common/base/check.h"
#include "common/base/mailbox.h"
#include "engine/device/cuda/status.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/nccl/open_nccl.h"

extern char** environ;

namespace baton {
namespace {

using device::cuda::CheckOk;

constexpr int kIn = 10, kOut = 11;  // the receiver's ends of the pipes
// The receiver's bytes before a meeting, or about a payload; and the size that an id is announced by.
constexpr char kAsks = 2, kArrived = 1;
constexpr uint32_t kIdFollows = UINT32_MAX;
// One layer of 32 blocks of an 8B model in bf16, 64 KiB each, and how many such chunks a round sends.
constexpr int64_t kPiece = 64 << 10, kPieces = 32, kChunk = kPiece * kPieces;
constexpr int kChunks = 64;

struct Worker {
  std::unique_ptr<kernels::cuda::CudaKernels> cuda;
  std::unique_ptr<transfer::Nccl> nccl;
  MonotonicClock clock;
  Mailbox<absl::AnyInvocable<void()>> engine{1000};
  std::unique_ptr<transfer::NcclLink> link;
  device::Memory::Buffer blocks;  // kChunks payloads
  std::vector<std::vector<std::span<std::byte>>> pieces;

  Worker(int device, uint64_t incarnation, transfer::NcclLink::Ask ask) {
    const auto must = [](auto made) {
      BATON_CHECK(made.ok()) << " " << made.status().ToString();
      return *std::move(made);
    };
    cuda = must(kernels::cuda::CudaKernels::Create({.device = device}));
    device::Memory* const memory = &cuda->memory();
    nccl = must(transfer::OpenNccl({&memory, 1}));
    transfer::NcclLinkOptions options;
    options.pairs.join_timeout = options.pairs.transfer_timeout = absl::Seconds(60);
    options.staging_bytes = int64_t{1} << 30;
    options.version = nccl->version();
    link = must(transfer::NcclLink::Create(
        nccl->Api(), nccl->payload(), clock, Incarnation(incarnation),
        [this](absl::AnyInvocable<void()> task) { return engine.PostAlways(std::move(task)); },
        std::move(ask), options));
    blocks = must(cuda->memory().Allocate(kChunk * kChunks));
    for (int c = 0; c < kChunks; ++c) {
      auto& chunk = pieces.emplace_back();
      // Every second piece first: blocks of a prompt are not neighbours.
      for (int64_t p = 0; p < kPieces; ++p) {
        const int64_t at = p < kPieces / 2 ? 2 * p : 2 * (p - kPieces / 2) + 1;
        chunk.emplace_back(blocks.get() + c * kChunk + at * kPiece, static_cast<size_t>(kPiece));
      }
    }
  }
  static std::vector<std::span<const std::byte>> ReadOnly(const std::vector<std::span<std::byte>>& pieces) {
    return {pieces.begin(), pieces.end()};
  }
};

bool ReadAll(int fd, void* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(fd, static_cast<char*>(to) + done, bytes - done);
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}
bool WriteAll(int fd, const void* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = write(fd, static_cast<const char*>(from) + done, bytes - done);
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

int Receive(int device) {
  transfer::LinkSender::Answer asked;
  Worker worker(
      device, 2,
      [&](const std::string&, const transfer::Meeting& meeting, transfer::LinkSender::Answer answer) {
        asked = std::move(answer);
        BATON_CHECK(WriteAll(kOut, &kAsks, 1) && WriteAll(kOut, meeting.data(), meeting.size()));
      });
  std::vector<std::unique_ptr<fleet::v1::KvChunk>> chunks;
  fcntl(kIn, F_SETFL, O_NONBLOCK);
  std::string bytes;
  int64_t received = 0;
  while (true) {
    char buffer[1 << 16];
    const ssize_t got = read(kIn, buffer, sizeof buffer);
    if (got == 0) return 0;
    if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
    uint32_t size;
    const auto frame = [&] { return size == kIdFollows ? sizeof(transfer::NcclId) : size_t{size}; };
    while (bytes.size() >= sizeof size &&
           (std::memcpy(&size, bytes.data(), sizeof size), bytes.size() >= sizeof size + frame())) {
      if (size == kIdFollows) {
        asked(bytes.substr(sizeof size, frame()));
        bytes.erase(0, sizeof size + frame());
        continue;
      }
      const auto& chunk = chunks.emplace_back(std::make_unique<fleet::v1::KvChunk>());
      BATON_CHECK(chunk->ParseFromString(bytes.substr(sizeof size, size)));
      bytes.erase(0, sizeof size + size);
      worker.link->Receive(*chunk, "sender", worker.pieces[static_cast<size_t>(received++ % kChunks)],
                           [](const absl::Status& status) {
                             const char ok = status.ok() ? kArrived : 0;
                             if (ok == 0) std::fprintf(stderr, "receiver: %s\n", status.ToString().c_str());
                             BATON_CHECK(WriteAll(kOut, &ok, 1));
                           });
    }
    for (auto& task : worker.engine.WaitAndTakeAll(absl::Microseconds(50))) task();
  }
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Row(const char* what, double bytes_per_second, double limit, const char* limit_name) {
  std::printf("| %-46s | %10.2f GB/s     | %10.2f %-18s | %5.1f%% |\n", what, bytes_per_second / 1e9,
              limit / 1e9, limit_name, 100 * bytes_per_second / limit);
  std::fflush(stdout);
}

// The best of five rounds of `issue`, which moves `bytes`.
template <typename Issue>
double Rate(Worker& worker, double bytes, int rounds, Issue issue) {
  double best = 0;
  for (int round = 0; round < rounds + 1; ++round) {
    CheckOk(cudaStreamSynchronize(worker.cuda->stream()), "timing");
    const double begin = Now();
    issue();
    CheckOk(cudaStreamSynchronize(worker.cuda->stream()), "timing");
    if (round > 0) best = std::max(best, bytes / (Now() - begin));
  }
  return best;
}

int Measure(bool quick) {
  const int rounds = quick ? 2 : 5;
  int devices = 0;
  CheckOk(cudaGetDeviceCount(&devices), "looking for GPUs");
  const bool two = devices > 1;
  int to[2], from[2];
  BATON_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], kIn);
  posix_spawn_file_actions_adddup2(&actions, from[1], kOut);
  std::string program = "/proc/self/exe", receive = std::string("--receive=") + (two ? "1" : "0");
  char* argv[] = {program.data(), receive.data(), nullptr};
  pid_t pid = 0;
  if (!two) setenv("NCCL_HOSTID", "baton-receiver", 1);
  BATON_CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environ) == 0);
  if (!two) setenv("NCCL_HOSTID", "baton-sender", 1);
  close(to[0]);
  close(from[1]);

  Worker worker(0, 1, nullptr);
  transfer::Payload& payload = worker.nccl->payload();
  const auto total = static_cast<double>(kChunk) * kChunks;
  std::printf("| %-46s | %-19s | %-29s | %-6s |\n|---|---|---|---|\n", "what", "measured", "limit", "ratio");
  void* scratch = nullptr;
  CheckOk(cudaMalloc(&scratch, static_cast<size_t>(kChunk * kChunks)), "a copy");
  // Several, since one takes little longer than to begin it and to hear of its end.
  constexpr int kCopies = 20;
  const double copy = Rate(worker, kCopies * total, rounds, [&] {
    for (int i = 0; i < kCopies; ++i) {
      CheckOk(cudaMemcpyAsync(scratch, worker.blocks.get(), static_cast<size_t>(kChunk * kChunks),
                              cudaMemcpyDeviceToDevice, worker.cuda->stream()),
              "a copy");
    }
  });
  Row("copy on the device, 128 MiB", copy, copy, "itself");
  std::vector<device::Memory::Buffer> staging;
  for (int c = 0; c < kChunks; ++c) {
    auto made = payload.Stage(kChunk + payload.TrailerBytes(kChunk));
    BATON_CHECK(made.ok()) << " " << made.status().ToString();
    staging.push_back(*std::move(made));
  }
  Row("packing with checksums, chunks of 2 MiB",
      Rate(worker, total, rounds,
           [&] {
             for (int c = 0; c < kChunks; ++c) {
               const auto pieces = Worker::ReadOnly(worker.pieces[static_cast<size_t>(c)]);
               payload.Pack(pieces, staging[static_cast<size_t>(c)].get());
             }
           }),
      copy, "copy");
  Row("checking and unpacking, chunks of 2 MiB",
      Rate(worker, total, rounds,
           [&] {
             uint64_t last = 0;
             for (int c = 0; c < kChunks; ++c) {
               last = payload.Unpack(staging[static_cast<size_t>(c)].get(), kChunk,
                                     worker.pieces[static_cast<size_t>(c)]);
             }
             for (uint64_t number = last - kChunks + 1; number <= last; ++number) {
               std::optional<absl::Status> unpacked;
               while (!(unpacked = payload.Unpacked(number)).has_value()) {
               }
               BATON_CHECK(unpacked->ok()) << " " << unpacked->ToString();
             }
           }),
      copy, "copy");
  staging.clear();

  double limit = copy;
  if (two) {
    CheckOk(cudaSetDevice(1), "the second GPU");
    void* there = nullptr;
    CheckOk(cudaMalloc(&there, static_cast<size_t>(kChunk * kChunks)), "a copy");
    CheckOk(cudaSetDevice(0), "the first GPU");
    limit = Rate(worker, total, rounds, [&] {
      CheckOk(cudaMemcpyPeerAsync(there, 1, worker.blocks.get(), 0, static_cast<size_t>(kChunk * kChunks),
                                  worker.cuda->stream()),
              "a copy to the peer");
    });
    Row("cudaMemcpyPeer, 128 MiB", limit, limit, "itself");
  }
  const double link = Rate(worker, total, rounds, [&] {
    std::string messages;
    for (int c = 0; c < kChunks; ++c) {
      fleet::v1::KvChunk chunk;
      chunk.set_incarnation(2);
      const absl::Status shipped =
          worker.link->Ship(Worker::ReadOnly(worker.pieces[static_cast<size_t>(c)]), chunk);
      BATON_CHECK(shipped.ok()) << " " << shipped.ToString();
      const std::string message = chunk.SerializeAsString();
      const auto size = static_cast<uint32_t>(message.size());
      BATON_CHECK(WriteAll(to[1], &size, sizeof size) && WriteAll(to[1], message.data(), message.size()));
    }
    for (int arrived = 0; arrived < kChunks;) {
      char says = 0;
      BATON_CHECK(ReadAll(from[0], &says, 1) && (says == kArrived || says == kAsks));
      if (says == kArrived) {
        ++arrived;
        continue;
      }
      transfer::Meeting meeting(transfer::kMeetingBytes, '\0');
      BATON_CHECK(ReadAll(from[0], meeting.data(), meeting.size()));
      std::optional<std::string> id;
      worker.link->Meet(meeting, [&](const absl::StatusOr<std::string>& answer) {
        BATON_CHECK(answer.ok()) << " " << answer.status().ToString();
        id = *answer;
      });
      while (!id.has_value()) {
        for (auto& task : worker.engine.WaitAndTakeAll(absl::Milliseconds(1))) task();
      }
      BATON_CHECK(WriteAll(to[1], &kIdFollows, sizeof kIdFollows) && WriteAll(to[1], id->data(), id->size()));
    }
  });
  Row(two ? "nccl link, GPU to GPU, until scattered" : "nccl link, two ranks on one GPU over loopback", link,
      limit, two ? "cudaMemcpyPeer" : "copy");
  if (!two) std::printf("No second GPU: cudaMemcpyPeer and NVLink are not measured.\n");
  std::printf("| %-46s | %10.2f MB       | | |\n", "GPU memory of one communicator",
              static_cast<double>(worker.link->counts().communicator_bytes) / 1e6);
  close(to[1]);
  int status = 0;
  waitpid(pid, &status, 0);
  CheckOk(cudaFree(scratch), "the end");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app("The nccl link against the machine's limits");
  bool quick = false;
  int receive = -1;
  app.add_flag("--quick", quick, "Fewer repetitions");
  app.add_option("--receive", receive, "Serves as the receiver on this GPU (used by the program itself)");
  CLI11_PARSE(app, argc, argv);
  return receive >= 0 ? baton::Receive(receive) : baton::Measure(quick);
}
