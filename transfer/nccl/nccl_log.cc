#include "transfer/nccl/nccl_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace baton::transfer {
namespace {

constexpr char kSubsystems[] = "INIT,NET,P2P,SHM";

std::string_view Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLog>> NcclLog::Open() {
  if (!Environment("NCCL_DEBUG_FILE").empty()) {
    return absl::FailedPreconditionError(
        "NCCL_DEBUG_FILE is set: what NCCL uses to carry KV is in that file, and not known here");
  }
  const int file = memfd_create("nccl-log", MFD_CLOEXEC);
  if (file < 0) return absl::InternalError(fmt::format("memory for NCCL's log: {}", std::strerror(errno)));
  const std::string level(Environment("NCCL_DEBUG"));
  const bool all = std::ranges::any_of(std::array{"INFO", "TRACE", "ABORT"}, [&](const char* verbose) {
    return strcasecmp(level.c_str(), verbose) == 0;
  });
  if (!all) setenv("NCCL_DEBUG", "INFO", 1);
  const std::string_view subsystems = Environment("NCCL_DEBUG_SUBSYS");
  if (subsystems.empty()) {
    setenv("NCCL_DEBUG_SUBSYS", kSubsystems, 1);
  } else if (!subsystems.starts_with('^')) {
    setenv("NCCL_DEBUG_SUBSYS", fmt::format("{},{}", subsystems, kSubsystems).c_str(), 1);
  }
  setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", file).c_str(), 1);
  return std::unique_ptr<NcclLog>(new NcclLog(file, all));
}

// The file stays: NCCL may still write, and its environment names it.
NcclLog::~NcclLog() = default;

std::vector<std::string> NcclLog::Read() {
  std::vector<std::string> lines;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t bytes = pread(file_, buffer.data(), buffer.size(), read_);
    if (bytes <= 0) break;
    read_ += bytes;
    rest_.append(buffer.data(), static_cast<size_t>(bytes));
    size_t begin = 0;
    for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string_view line = std::string_view(rest_).substr(begin, end - begin);
      if (std::string transport = TransportOf(line); !transport.empty()) ++channels_[std::move(transport)];
      if (all_ || line.find("NCCL WARN") != std::string_view::npos) lines.emplace_back(line);
    }
    rest_.erase(0, begin);
    // Frees the memory of the part that was read.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, read_);
  }
  return lines;
}

void NcclLog::Restart() {
  (void)Read();
  channels_.clear();
}

// "[0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA(PCI)"
std::string NcclLog::TransportOf(std::string_view line) {
  constexpr std::string_view kVia = " via ";
  const size_t channel = line.find("NCCL INFO Channel "), via = line.find(kVia);
  if (channel == std::string_view::npos || via == std::string_view::npos || via < channel) return "";
  std::vector<std::string> parts;
  std::istringstream names{std::string(line.substr(via + kVia.size()))};
  for (std::string part; std::getline(names, part, '/');) parts.push_back(std::move(part));
  if (parts.empty() || parts[0] == "SHM" || parts.size() < 2) return parts.empty() ? "" : parts[0];
  std::string transport = fmt::format("{}/{}", parts[0], parts[1]);
  for (const std::string& part : parts) {
    if (part.starts_with("GDRDMA")) return transport + "/GDRDMA";
  }
  return transport;
}

bool NcclLog::Allowed(std::string_view asked, std::string_view transport) {
  if (asked == "any") return true;
  const bool p2p = transport.starts_with("P2P/");
  if (asked == "p2p") return p2p;
  return p2p || (transport.starts_with("NET/") && transport != "NET/Socket");
}

}  // namespace baton::transfer
