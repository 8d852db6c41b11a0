#include "router/store/store_address.h"

#include <fmt/format.h>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/base/quote.h"

namespace baton::router::store {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxDatabase = 65535;

std::string View(absl::string_view text) { return std::string(text.data(), text.size()); }

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(
      fmt::format("{}; write redis://[USER@]HOST[:PORT][/DATABASE] or unix:///PATH", what));
}

}  // namespace

std::string StoreAddress::Text() const {
  if (!socket.empty()) return "unix://" + socket;
  const bool six = host.find(':') != std::string::npos;
  return fmt::format("redis://{}{}{}:{}/{}", six ? "[" : "", host, six ? "]" : "", port, database);
}

absl::StatusOr<StoreAddress> ParseStoreAddress(std::string_view url) {
  absl::string_view rest(url.data(), url.size());
  StoreAddress address;
  if (absl::ConsumePrefix(&rest, "unix://")) {
    if (rest.empty() || rest.front() != '/') return Malformed("the path of the socket is missing");
    address.socket = View(rest);
    return address;
  }
  if (absl::ConsumePrefix(&rest, "rediss://")) {
    return absl::InvalidArgumentError(
        "the connection to the store has no TLS of its own: put a TLS proxy beside the router and name that "
        "(redis://127.0.0.1:PORT)");
  }
  if (!absl::ConsumePrefix(&rest, "redis://")) return Malformed("it does not begin with redis:// or unix://");
  if (const auto at = rest.rfind('@'); at != absl::string_view::npos) {
    address.user = View(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    if (address.user.find(':') != std::string::npos) {
      return absl::InvalidArgumentError(
          "a password in an address can be seen by others: write it to a file and name that with "
          "--store-password-file");
    }
  }
  if (const auto slash = rest.find('/'); slash != absl::string_view::npos) {
    const absl::string_view database = rest.substr(slash + 1);
    if (!database.empty() && (!absl::SimpleAtoi(database, &address.database) || address.database < 0 ||
                              address.database > kMaxDatabase)) {
      return Malformed(fmt::format("{} is no number of a database", Quoted(View(database))));
    }
    rest = rest.substr(0, slash);
  }
  absl::string_view port;
  if (absl::ConsumePrefix(&rest, "[")) {
    const auto end = rest.find(']');
    if (end == absl::string_view::npos) return Malformed("a bracket is not closed");
    address.host = View(rest.substr(0, end));
    port = rest.substr(end + 1);
  } else {
    const auto colon = rest.find(':');
    address.host = View(rest.substr(0, colon));
    port = colon == absl::string_view::npos ? absl::string_view() : rest.substr(colon);
  }
  if (address.host.empty()) return Malformed("the host is missing");
  if (!port.empty() && (!absl::ConsumePrefix(&port, ":") || !absl::SimpleAtoi(port, &address.port) ||
                        address.port < 1 || address.port > kMaxPort)) {
    return Malformed(fmt::format("{} is no port", Quoted(View(port))));
  }
  return address;
}

}  // namespace baton::router::store
