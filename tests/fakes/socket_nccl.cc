#include "tests/fakes/socket_nccl.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"

namespace baton::transfer {
namespace {

std::atomic<bool> holding = false;
std::atomic<int> lost = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) {
  if (signal == SIGUSR1) {
    holding = !holding;
  } else {
    ++lost;
  }
}

class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() { Reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Part {
  std::byte* data = nullptr;
  size_t left = 0;
};

struct End {
  Descriptor listening, socket;
  bool failed = false;
  int lost_before = lost;  // errors that were scripted for those before it
  std::deque<Part> sends, receives;
  int64_t done = 0;

  // Takes the peer in and moves bytes. A peer that is gone is noticed where bytes should move, and nowhere
  // else.
  NcclState Progress();

 private:
  bool Move(Part& part, bool send);
};

// False if the socket takes no more now, or has failed.
bool End::Move(Part& part, bool send) {
  while (part.left > 0) {
    const ssize_t moved = send ? ::send(socket.get(), part.data, part.left, MSG_DONTWAIT | MSG_NOSIGNAL)
                               : recv(socket.get(), part.data, part.left, MSG_DONTWAIT);
    if (moved <= 0) {
      failed = moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
      return false;
    }
    part.data += moved;
    part.left -= static_cast<size_t>(moved);
  }
  return true;
}

NcclState End::Progress() {
  if (failed || lost != lost_before) return NcclState::kFailed;
  if (socket.get() < 0) {
    socket.Reset(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) return NcclState::kBusy;
    listening.Reset(-1);
  }
  for (auto* parts : {&sends, &receives}) {
    while (!holding && !parts->empty() && Move(parts->front(), parts == &sends)) {
      parts->pop_front();
      ++done;
    }
  }
  return failed ? NcclState::kFailed : NcclState::kOk;
}

End& Of(Communicator communicator) { return *static_cast<End*>(communicator); }

// An abstract name: it goes with its socket.
socklen_t Name(const NcclId& id, sockaddr_un& name) {
  constexpr char kPrefix[] = "baton-nccl-";
  constexpr char kDigits[] = "0123456789abcdef";
  name = {};
  name.sun_family = AF_UNIX;
  char* to = name.sun_path + 1;
  to = std::copy(std::begin(kPrefix), std::end(kPrefix) - 1, to);
  for (size_t i = 0; i < 16; ++i) {
    *to++ = kDigits[static_cast<unsigned>(id[i]) >> 4];
    *to++ = kDigits[static_cast<unsigned>(id[i]) & 15];
  }
  return static_cast<socklen_t>(to - reinterpret_cast<char*>(&name));
}

// As NCCL's own, an id listens from the moment that it is made, until rank 0 has come: and for the life of
// the process if it never does.
class Listening {
 public:
  NcclState Make(NcclId& id) {
    std::random_device random;
    for (std::byte& byte : id) byte = static_cast<std::byte>(random());
    sockaddr_un name;
    const socklen_t size = Name(id, name);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return NcclState::kFailed;
    absl::MutexLock lock(&mutex_);
    sockets_[id] = fd;
    const bool listens = bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0 && listen(fd, 1) == 0;
    return listens ? NcclState::kOk : NcclState::kFailed;
  }
  // -1 if it was not made here.
  int Take(const NcclId& id) {
    absl::MutexLock lock(&mutex_);
    auto taken = sockets_.extract(id);
    return taken.empty() ? -1 : taken.mapped();
  }

 private:
  absl::Mutex mutex_;
  std::map<NcclId, int> sockets_ ABSL_GUARDED_BY(mutex_);
};

Listening& Ids() {
  static auto* const ids = new Listening;  // as long as the process
  return *ids;
}

// As NCCL does for each channel: what carries it. A line that says so is all that NCCL tells of it.
void Log(int rank) {
  const char* const name = std::getenv("NCCL_DEBUG_FILE");
  const int file = name == nullptr ? -1 : open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  const std::string line = "worker:1:1 [0] NCCL INFO Channel 00/0 : " + std::to_string(rank) + "[0] -> " +
                           std::to_string(1 - rank) + "[0] [send] via NET/Socket/0\n";
  (void)!write(file, line.data(), line.size());
  close(file);
}

NcclState Join(const NcclId& id, int rank, Communicator& communicator) {
  auto end = std::make_unique<End>();
  if (rank == 0) {
    end->listening.Reset(Ids().Take(id));
    if (end->listening.get() < 0) return NcclState::kFailed;
  } else {
    sockaddr_un name;
    const socklen_t size = Name(id, name);
    end->socket.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(end->socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) {
      return NcclState::kFailed;
    }
  }
  Log(rank);
  communicator = end.release();
  return NcclState::kBusy;
}

NcclState Put(Communicator communicator, std::span<const TransferMemory> group, bool send) {
  End& end = Of(communicator);
  for (const TransferMemory& memory : group) {
    (send ? end.sends : end.receives).push_back({memory.data, memory.bytes});
  }
  return end.Progress() == NcclState::kFailed ? NcclState::kFailed : NcclState::kOk;
}

class SocketNccl final : public Nccl {
 public:
  NcclApi Api() override { return MakeSocketNccl(); }
  Payload& payload() override { return *payload_; }
  int version() const override { return kSocketNcclVersion; }
  int channels() const override { return 1; }

 private:
  const std::unique_ptr<Payload> payload_ = MakeHostPayload();
};

}  // namespace

NcclApi MakeSocketNccl() {
  return {
      .make_id = [](NcclId& id) { return Ids().Make(id); },
      .join = Join,
      .abort =
          [](std::span<const Communicator> communicators) {
            for (const Communicator communicator : communicators) delete &Of(communicator);
          },
      .state = [](Communicator communicator) { return Of(communicator).Progress(); },
      .send = [](Communicator communicator,
                 std::span<const TransferMemory> group) { return Put(communicator, group, true); },
      .receive = [](Communicator communicator,
                    std::span<const TransferMemory> group) { return Put(communicator, group, false); },
      .done =
          [](Communicator communicator, int64_t& done) {
            const NcclState state = Of(communicator).Progress();
            done = Of(communicator).done;
            return state;
          },
      .memory = [](Communicator) { return static_cast<int64_t>(sizeof(End)); },
      .last_error = [](Communicator) { return std::string("the peer's socket"); },
  };
}

absl::StatusOr<std::unique_ptr<Nccl>> OpenNccl(std::span<device::Memory* const> ranks) {
  for (device::Memory* memory : ranks) BATON_CHECK(memory->host());
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  BATON_CHECK(sigaction(SIGUSR1, &action, nullptr) == 0 && sigaction(SIGUSR2, &action, nullptr) == 0);
  return std::make_unique<SocketNccl>();
}

}  // namespace baton::transfer
