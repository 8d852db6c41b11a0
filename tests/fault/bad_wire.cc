#include "tests/fault/bad_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::fault {
namespace {

constexpr int kFarSide = 1;  // of `sockets`

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Root may just make a namespace; others need a user namespace around it, in which they are root.
absl::Status LeaveForOwnNamespace() {
  if (unshare(CLONE_NEWNET) == 0) return absl::OkStatus();
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return Failed("no network namespace can be made here");
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", uid);
  std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", gid);
  return absl::OkStatus();
}

// On a thread that lives in that namespace for as long.
absl::Status Within(int space, const std::function<absl::Status()>& work) {
  absl::Status status;
  std::thread([&] { status = setns(space, CLONE_NEWNET) == 0 ? work() : Failed("setns"); }).join();
  return status;
}

absl::StatusOr<int> MakeNamespace() {
  int space = -1;
  absl::Status status;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      status = Failed("unshare");
    } else {
      space = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
      if (space < 0) status = Failed("/proc/thread-self/ns/net");
    }
  }).join();
  if (!status.ok()) return status;
  return space;
}

absl::Status Ip(const std::string& arguments) {
  const std::string command = fmt::format("ip {} >/dev/null 2>&1", arguments);
  if (std::system(command.c_str()) == 0) return absl::OkStatus();  // NOLINT(cert-env33-c): a fixed command
  return absl::UnavailableError(fmt::format("this failed: ip {}", arguments));
}

// Frames as they would be on a cable: of MTU size, with checksums in them.
absl::Status SwitchOffloadsOff(const char* interface) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Failed("socket");
  absl::Status status;
  for (const uint32_t what : {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM}) {
    ethtool_value value{what, 0};
    ifreq request{};
    std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    if (ioctl(fd, SIOCETHTOOL, &request) != 0 && what == ETHTOOL_STXCSUM) status = Failed("SIOCETHTOOL");
  }
  close(fd);
  return status;
}

absl::StatusOr<int> OpenTap(const char* interface) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
  if (fd < 0) return Failed("AF_PACKET");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
  const int buffer = 16 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return Failed(fmt::format("bind to {}", interface));
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BadWire>> BadWire::Create(uint64_t seed) {
  BATON_RETURN_IF_ERROR(LeaveForOwnNamespace());
  BATON_ASSIGN_OR_RETURN(const int far, MakeNamespace());
  BATON_ASSIGN_OR_RETURN(const int middle, MakeNamespace());
  // near0 -- near1 | this process, in the middle | far1 -- far0
  const auto path = [](int space) { return fmt::format("/proc/{}/fd/{}", getpid(), space); };
  BATON_RETURN_IF_ERROR(Ip("link set lo up"));
  BATON_RETURN_IF_ERROR(Ip("link add near0 type veth peer name near1"));
  BATON_RETURN_IF_ERROR(Ip("link add far0 type veth peer name far1"));
  for (const char* interface : {"near1", "far1"}) {
    BATON_RETURN_IF_ERROR(Ip(fmt::format("link set {} netns {}", interface, path(middle))));
  }
  BATON_RETURN_IF_ERROR(Ip(fmt::format("link set far0 netns {}", path(far))));
  BATON_RETURN_IF_ERROR(SwitchOffloadsOff("near0"));
  BATON_RETURN_IF_ERROR(Ip("addr add 10.77.0.2/24 dev near0"));
  BATON_RETURN_IF_ERROR(Ip("link set near0 up"));
  BATON_RETURN_IF_ERROR(Within(far, [] {
    BATON_RETURN_IF_ERROR(SwitchOffloadsOff("far0"));
    BATON_RETURN_IF_ERROR(Ip("link set lo up"));
    BATON_RETURN_IF_ERROR(Ip(fmt::format("addr add {}/24 dev far0", kFarAddress)));
    return Ip("link set far0 up");
  }));
  int sockets[2] = {-1, -1};
  BATON_RETURN_IF_ERROR(Within(middle, [&] {
    BATON_RETURN_IF_ERROR(Ip("link set near1 up"));
    BATON_RETURN_IF_ERROR(Ip("link set far1 up"));
    BATON_ASSIGN_OR_RETURN(sockets[0], OpenTap("near1"));
    BATON_ASSIGN_OR_RETURN(sockets[1], OpenTap("far1"));
    return absl::OkStatus();
  }));
  close(middle);  // the taps keep it
  return std::unique_ptr<BadWire>(new BadWire(seed, far, sockets));
}

BadWire::BadWire(uint64_t seed, int far, int sockets[2])
    : far_(far),
      sockets_{sockets[0], sockets[1]},
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      random_(seed) {
  BATON_CHECK(wake_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

BadWire::~BadWire() {
  over_ = true;
  eventfd_write(wake_, 1);
  thread_.join();
  for (const int fd : {far_, sockets_[0], sockets_[1], wake_}) close(fd);
}

void BadWire::Set(const Trouble& trouble) {
  absl::MutexLock lock(&mutex_);
  trouble_ = trouble;
}

void BadWire::AwaitCut() const {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&trouble_.cut));
}

BadWire::Counts BadWire::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void BadWire::Run() {
  std::vector<char> buffer(1 << 16);
  while (!over_) {
    int wait = -1;  // milliseconds
    {
      absl::MutexLock lock(&mutex_);
      const absl::Time now = absl::Now();
      while (!waiting_.empty() && waiting_.begin()->first <= now) {
        const Frame& frame = waiting_.begin()->second;
        // A full queue loses the frame, as cables' ends do.
        if (send(sockets_[frame.to], frame.bytes.data(), frame.bytes.size(), 0) < 0) ++counts_.lost;
        waiting_.erase(waiting_.begin());
      }
      if (!waiting_.empty()) {
        wait = static_cast<int>(absl::ToInt64Milliseconds(waiting_.begin()->first - now)) + 1;
      }
    }
    pollfd fds[3] = {{sockets_[0], POLLIN, 0}, {sockets_[1], POLLIN, 0}, {wake_, POLLIN, 0}};
    poll(fds, 3, wait);
    for (int side = 0; side < 2; ++side) {
      // Not for ever: the other side waits too.
      for (int frames = 0; frames < 64; ++frames) {
        sockaddr_ll from{};
        socklen_t length = sizeof(from);
        const ssize_t size = recvfrom(sockets_[side], buffer.data(), buffer.size(), 0,
                                      reinterpret_cast<sockaddr*>(&from), &length);
        if (size < 0) break;
        if (from.sll_pkttype == PACKET_OUTGOING) continue;  // our own
        absl::MutexLock lock(&mutex_);
        Take(side, {buffer.data(), buffer.data() + size});
      }
    }
  }
}

void BadWire::Take(int side, std::vector<char> frame) {
  const auto happens = [this](double probability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  };
  if (side == kFarSide && frame.size() >= Trouble::kDataBytes && trouble_.cut_after >= 0) {
    trouble_.cut |= trouble_.cut_after-- == 0;
  }
  if (trouble_.cut || happens(trouble_.loss)) {
    ++counts_.lost;
    return;
  }
  if (happens(trouble_.damage)) {
    // Behind the Ethernet header, so that somebody receives it.
    const size_t bit = std::uniform_int_distribution<size_t>(14 * 8, frame.size() * 8 - 1)(random_);
    frame[bit / 8] = static_cast<char>(frame[bit / 8] ^ (1 << bit % 8));
    ++counts_.damaged;
  }
  absl::Time due = absl::Now() + trouble_.delay;
  if (happens(trouble_.reorder)) {
    due += Trouble::kLate;
    ++counts_.reordered;
  }
  const int to = 1 - side;
  if (happens(trouble_.repeat)) {
    waiting_.emplace(due, Frame{to, frame});
    ++counts_.repeated;
  }
  waiting_.emplace(due, Frame{to, std::move(frame)});
  ++counts_.passed;
}

}  // namespace baton::fault
