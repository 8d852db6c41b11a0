// The nccl link with the real NCCL: two processes, so two ranks, on one GPU. NCCL takes them for two machines
// (NCCL_HOSTID) and goes over loopback sockets, so nothing here says how fast a link is; that the bytes
// arrive, that a dead peer is noticed and that the next meeting works, it does.
//
// The test starts itself a second time as the receiver: chunk messages go there by one pipe, and what arrived
// comes back by another. So does the receiver's question for a meeting's id, and its answer.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/mailbox.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "tests/gpu/gpu.h"
#include "tests/patience.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/nccl/open_nccl.h"

extern char** environ;

namespace baton::gpu {
namespace {

constexpr uint32_t kNcclSeed = 111;
constexpr int kIn = 10, kOut = 11;  // the receiver's ends of the pipes
constexpr uint64_t kSender = 1, kReceiver = 2;

// A worker's half: engine, NCCL and link on GPU 0.
struct Worker {
  std::unique_ptr<kernels::cuda::CudaKernels> cuda = *kernels::cuda::CudaKernels::Create({});
  device::Memory* const memory = &cuda->memory();
  std::unique_ptr<transfer::Nccl> nccl = *transfer::OpenNccl({&memory, 1});
  MonotonicClock clock;
  Mailbox<absl::AnyInvocable<void()>> engine{1000};
  std::unique_ptr<transfer::NcclLink> link;

  Worker(uint64_t incarnation, absl::Duration timeout, transfer::NcclLink::Ask ask)
      : link(*transfer::NcclLink::Create(
            nccl->Api(), nccl->payload(), clock, Incarnation(incarnation),
            [this](absl::AnyInvocable<void()> task) { return engine.PostAlways(std::move(task)); },
            std::move(ask),
            {.pairs = {.join_timeout = absl::Seconds(60),
                       .transfer_timeout = timeout,
                       .first_quarantine = absl::Milliseconds(100)},
             .version = nccl->version()})) {}
  void RunEngine() {
    for (auto& task : engine.WaitAndTakeAll(absl::Milliseconds(1))) task();
  }
};

// The receiver's bytes: before a meeting whose id it wants, or before a payload.
constexpr char kAsks = 2, kArrived = 1, kFailed = 0;

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

// The receiver's process: receives what each message announces and sends back a status byte and the payload.
TEST(NcclReceiver, DISABLED_Serves) {
  Worker worker(
      kReceiver, absl::Seconds(30),
      [](const std::string&, const transfer::Meeting& meeting, transfer::LinkSender::Answer answer) {
        std::string id(sizeof(transfer::NcclId), '\0');
        if (!WriteAll(kOut, &kAsks, 1) || !WriteAll(kOut, meeting.data(), meeting.size()) ||
            !ReadAll(kIn, id.data(), id.size())) {
          return answer(absl::UnavailableError("the sender is gone"));
        }
        answer(std::move(id));
      });
  for (uint64_t size; ReadAll(kIn, &size, sizeof size);) {
    std::string message(size, '\0');
    ASSERT_TRUE(ReadAll(kIn, message.data(), size));
    fleet::v1::KvChunk chunk;
    ASSERT_TRUE(chunk.ParseFromString(message));
    const auto bytes = static_cast<int64_t>(chunk.apart().bytes());
    auto target = *worker.cuda->memory().Allocate(bytes);
    const std::span<std::byte> halves[] = {
        {target.get(), static_cast<size_t>(bytes / 32 * 16)},
        {target.get() + bytes / 32 * 16, static_cast<size_t>(bytes - bytes / 32 * 16)}};
    std::optional<absl::Status> status;
    worker.link->Receive(chunk, "sender", halves, [&](absl::Status told) { status = std::move(told); });
    while (!status.has_value()) worker.RunEngine();
    std::vector<std::byte> arrived(static_cast<size_t>(bytes));
    ASSERT_TRUE(worker.cuda->memory().Download(target.get(), arrived.data(), bytes).ok());
    const char ok = status->ok() ? kArrived : kFailed;
    if (!status->ok()) std::fprintf(stderr, "receiver: %s\n", status->ToString().c_str());
    ASSERT_TRUE(WriteAll(kOut, &ok, 1) && WriteAll(kOut, arrived.data(), arrived.size()));
  }
}

class Receiver {
 public:
  Receiver() {
    int to[2], from[2];
    EXPECT_TRUE(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], kIn);
    posix_spawn_file_actions_adddup2(&actions, from[1], kOut);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=NcclReceiver.DISABLED_Serves",
                disabled = "--gtest_also_run_disabled_tests";
    char* argv[] = {program.data(), filter.data(), disabled.data(), nullptr};
    setenv("NCCL_HOSTID", "baton-receiver", 1);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv, environ), 0);
    setenv("NCCL_HOSTID", "baton-sender", 1);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    out_ = from[0];
  }
  ~Receiver() {
    close(in_);
    int status = 0;
    waitpid(pid_, &status, 0);
    close(out_);
  }
  void Kill() { kill(pid_, SIGKILL); }
  void Announce(const fleet::v1::KvChunk& chunk) {
    const std::string message = chunk.SerializeAsString();
    const uint64_t size = message.size();
    EXPECT_TRUE(WriteAll(in_, &size, sizeof size) && WriteAll(in_, message.data(), size));
  }
  // Returns the payload; empty if it did not arrive. The sender answers what it is asked meanwhile.
  std::vector<std::byte> Arrived(Worker& sender, size_t bytes) {
    char says = kFailed;
    while (ReadAll(out_, &says, 1) && says == kAsks) {
      transfer::Meeting meeting(transfer::kMeetingBytes, '\0');
      EXPECT_TRUE(ReadAll(out_, meeting.data(), meeting.size()));
      std::optional<absl::StatusOr<std::string>> id;
      sender.link->Meet(meeting, [&](absl::StatusOr<std::string> answer) { id = std::move(answer); });
      while (!id.has_value()) sender.RunEngine();
      EXPECT_TRUE(id->ok()) << id->status();
      if (!id->ok() || !WriteAll(in_, (*id)->data(), (*id)->size())) return {};
    }
    std::vector<std::byte> arrived(bytes);
    if (!ReadAll(out_, arrived.data(), bytes) || says != kArrived) return {};
    return arrived;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
};

class NcclGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    int devices = 0;
    ASSERT_TRUE(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) << "these tests need a GPU";
    signal(SIGPIPE, SIG_IGN);
  }
};

fleet::v1::KvChunk Ship(Worker& worker, uint64_t receiver, const device::Memory::Buffer& source,
                        size_t bytes) {
  fleet::v1::KvChunk chunk;
  chunk.set_incarnation(receiver);
  const std::span<const std::byte> piece(source.get(), bytes);
  const absl::Status shipped = worker.link->Ship({&piece, 1}, chunk);
  EXPECT_TRUE(shipped.ok()) << shipped;
  return chunk;
}

TEST_F(NcclGpuTest, BytesArriveAndADeadPeerEndsItsPair) {
  SCOPED_TRACE(testing::Message() << "seed " << kNcclSeed);
  std::mt19937 random(kNcclSeed);
  auto receiver = std::make_unique<Receiver>();
  Worker worker(kSender, absl::Seconds(10), nullptr);
  const int64_t free_before = worker.cuda->memory().available();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> bytes(16 * (1 + random() % (round < 15 ? 5000 : 300000)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    auto source = *worker.cuda->memory().Allocate(static_cast<int64_t>(bytes.size()));
    ASSERT_TRUE(
        worker.cuda->memory().Upload(bytes.data(), source.get(), static_cast<int64_t>(bytes.size())).ok());
    receiver->Announce(Ship(worker, kReceiver, source, bytes.size()));
    ASSERT_EQ(receiver->Arrived(worker, bytes.size()), bytes) << "round " << round;
    if (round == 0) {
      std::printf("memory of one communicator and its staging: %.1f MB\n",
                  static_cast<double>(free_before - worker.cuda->memory().available()) / 1e6);
    }
  }
  // Killed with a transfer on its way: the pair ends within the timeout, and the process goes on.
  std::vector<std::byte> bytes(1 << 20, std::byte{1});
  auto source = *worker.cuda->memory().Allocate(1 << 20);
  receiver->Kill();
  receiver.reset();
  Ship(worker, kReceiver, source, bytes.size());
  Await([&] { return worker.link->counts().failed > 0; }, "the end of the pair");
  // Another life of the same worker is another peer.
  Receiver reborn;
  ASSERT_TRUE(worker.cuda->memory().Upload(bytes.data(), source.get(), 1 << 20).ok());
  reborn.Announce(Ship(worker, kReceiver + 1, source, bytes.size()));
  EXPECT_EQ(reborn.Arrived(worker, bytes.size()), bytes);
}

}  // namespace
}  // namespace baton::gpu
