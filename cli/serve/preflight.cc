#include "cli/serve/preflight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/serve/child.h"
#include "common/base/status.h"

namespace baton::cli {
namespace {

absl::Status Failed(const std::string& flag, const std::string& value, const std::string& why) {
  return absl::UnavailableError(fmt::format("{} {}: {}", flag, value, why));
}

// As a server would do it: gRPC and the metrics page both set SO_REUSEADDR.
int TryToListen(const addrinfo& address) {
  const Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return errno;
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  return listen(socket.get(), 1) == 0 ? 0 : errno;
}

// Creates and removes a file with a unique name.
absl::Status TryFile(const std::string& flag, const std::string& value, const std::filesystem::path& folder) {
  const std::string draft = (folder / fmt::format(".baton-{}.tmp", getpid())).string();
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return Failed(flag, value, fmt::format("can't write in {}: {}", folder.string(), strerror(errno)));
  close(file);
  unlink(draft.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status CanListen(const std::string& flag, const std::string& address) {
  const size_t colon = address.rfind(':');
  if (address.starts_with("unix:") || colon == std::string::npos) return absl::OkStatus();
  const std::string port = address.substr(colon + 1);
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Failed(flag, address, fmt::format("no such host ({})", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  // A name may have addresses that this machine does not: one that works is enough.
  int failure = 0;
  bool any = false;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const int error = TryToListen(*one);
    any |= error == 0;
    if (error != 0 && failure != EADDRINUSE) failure = error;
  }
  if (failure == EADDRINUSE) {
    return Failed(
        flag, address,
        "the port is taken, perhaps by another `baton serve`: give another port, or 0 for a free one");
  }
  if (any) return absl::OkStatus();
  if (failure == EADDRNOTAVAIL) {
    return Failed(flag, address,
                  "the host is not this machine's: use one of its own addresses, or 0.0.0.0 for all");
  }
  return Failed(flag, address, strerror(failure));
}

absl::Status CanReplaceFile(const std::string& flag, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return Failed(flag, path, "is a folder: give the name of a file");
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (!std::filesystem::is_directory(folder, error)) {
    return Failed(flag, path, fmt::format("there is no folder {}", folder.string()));
  }
  return TryFile(flag, path, folder);
}

absl::Status CanFillFolder(const std::string& flag, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string why = error ? error.message() : "it is a file";
  if (!std::filesystem::is_directory(folder, error)) {
    return Failed(flag, folder, fmt::format("can't make the folder: {}", why));
  }
  return TryFile(flag, folder, folder);
}

}  // namespace baton::cli
