#include "cli/serve/traffic_watch.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "cli/serve/traffic.h"
#include "common/base/check.h"

namespace baton::cli {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
// Periods in the mean of a rate: long enough to be steady, short enough to follow.
constexpr size_t kWindow = 5;
// A page is some 100 KiB.
constexpr size_t kMaxBytes = 8 << 20;

// False: the deadline is over, or it is time to stop.
bool WaitFor(int fd, short events, absl::Time deadline, int stop_fd) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd fds[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (fds[1].revents != 0) return false;
    if (ready > 0 && fds[0].revents != 0) return true;
  }
}

}  // namespace

std::optional<std::string> FetchMetrics(const std::string& address, absl::Duration patience, int stop_fd) {
  const absl::Time deadline = absl::Now() + patience;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const Descriptor fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return std::nullopt;
  if (connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) return std::nullopt;
  if (!WaitFor(fd.get(), POLLOUT, deadline, stop_fd)) return std::nullopt;
  // HTTP/1.0: the body ends with the connection, in one piece.
  const std::string request = fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", address);
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request))
    return std::nullopt;
  std::string answer;
  while (answer.size() < kMaxBytes && WaitFor(fd.get(), POLLIN, deadline, stop_fd)) {
    char bytes[16384];
    const ssize_t got = recv(fd.get(), bytes, sizeof(bytes), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return std::nullopt;
    if (got > 0) {
      answer.append(bytes, got);
      continue;
    }
    const size_t body = answer.find("\r\n\r\n");
    if (answer.rfind("HTTP/1.", 0) != 0 || answer.find(" 200 ") > 12 || body == std::string::npos) break;
    return answer.substr(body + 4);
  }
  return std::nullopt;
}

TrafficWatch::TrafficWatch(std::string address, std::function<void(std::string)> show)
    : address_(std::move(address)), show_(std::move(show)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  BATON_CHECK(stop_.get() >= 0);
  thread_ = std::thread([this] { Run(); });
}

TrafficWatch::~TrafficWatch() {
  const uint64_t one = 1;
  BATON_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void TrafficWatch::Run() {
  struct Sample {
    absl::Time time;
    Traffic traffic;
  };
  std::deque<Sample> samples;
  bool stopping = false;
  while (!stopping) {
    const absl::Time now = absl::Now();
    if (const std::optional<std::string> page = FetchMetrics(address_, kPeriod, stop_.get())) {
      samples.push_back({now, Traffic::Parse(*page)});
      if (samples.size() > kWindow + 1) samples.pop_front();
      // The first page is all that there is since the start; a rate needs a time.
      const Sample& first = samples.front();
      const double seconds =
          std::max(absl::ToDoubleSeconds(now - first.time), absl::ToDoubleSeconds(kPeriod));
      show_(DescribeTraffic(first.traffic, samples.back().traffic, seconds));
    } else {
      samples.clear();
      show_("");
    }
    const absl::Duration rest = std::max(now + kPeriod - absl::Now(), absl::Milliseconds(1));
    pollfd stop = {stop_.get(), POLLIN, 0};
    stopping = poll(&stop, 1,
                    static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(rest, absl::Milliseconds(1))))) > 0;
  }
}

}  // namespace baton::cli
