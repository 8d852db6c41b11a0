#include "gateway/origins.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kAll = "*";
// A browser may remember an answer for so long; some take no more.
constexpr const char* kPreflightSeconds = "7200";
constexpr size_t kMaxOriginBytes = 300;

std::string Lower(std::string_view text) {
  return absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
}

// host:port, without the port that goes without saying.
std::string Authority(std::string_view host, std::string_view scheme) {
  std::string authority = Lower(host);
  const std::string_view usual = scheme == "https" ? ":443" : ":80";
  if (authority.ends_with(usual)) authority.resize(authority.size() - usual.size());
  return authority;
}

// {scheme, authority} of an origin; both empty: it is none, such as "null".
std::pair<std::string, std::string> PartsOf(std::string_view origin) {
  const size_t end = origin.find("://");
  if (end == std::string_view::npos) return {};
  const std::string scheme = Lower(origin.substr(0, end));
  return {scheme, Authority(origin.substr(end + 3), scheme)};
}

bool IsLoopback(std::string_view address) {
  const size_t port = address.rfind(':');
  const bool has_port = port != std::string_view::npos && address.find(']', port) == std::string_view::npos;
  const std::string_view host = has_port ? address.substr(0, port) : address;
  return host == "localhost" || host.ends_with(".localhost") || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

// A key that no browser adds by itself, as it does passwords of HTTP's own schemes.
bool HasKey(const http::Request& request) {
  return Lower(request.Header("authorization")).starts_with("bearer ") ||
         !request.Header("x-api-key").empty();
}

}  // namespace

Origins::Origins(std::vector<std::string> allowed, std::string_view listen)
    : allowed_(std::move(allowed)), local_(IsLoopback(listen)) {}

absl::Status Origins::Check(std::string_view origin) {
  const auto [scheme, authority] = PartsOf(origin);
  const bool plain = origin.size() <= kMaxOriginBytes && std::ranges::all_of(origin, absl::ascii_isgraph);
  if (origin == kAll || origin == "null" || origin == "file://" ||
      (plain && !scheme.empty() && !authority.empty() &&
       authority.find_first_of("/?#@") == std::string::npos)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("{}: not an origin: give its scheme, host and port, as https://chat.example.com, or * for "
                  "all",
                  origin.substr(0, kMaxOriginBytes)));
}

bool Origins::Allowed(std::string_view origin) const {
  return std::ranges::any_of(allowed_, [&](const std::string& one) {
    return one == kAll || one == origin || (PartsOf(one) == PartsOf(origin) && !PartsOf(one).first.empty());
  });
}

std::string Origins::WhyRefused(const http::Request& request) const {
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || Allowed(origin)) return "";
  const auto refused = [&](std::string_view why) {
    return fmt::format("origin: pages of {} {}; the operator can let them (--cors-origin)",
                       origin.substr(0, kMaxOriginBytes), why);
  };
  const std::string_view host = request.Header("host");
  if (local_ && !IsLoopback(Lower(host))) {
    return refused("may not use this server under a name that is not this machine's own");
  }
  if (HasKey(request)) return "";
  const auto [scheme, authority] = PartsOf(origin);
  // Pages that this machine serves itself are its user's, and a proxy in front of the server may leave
  // theirs.
  if (local_ && IsLoopback(authority)) return "";
  // A proxy has the page's host, too, and the first of several names it first. No page can send this header.
  const std::string_view forwarded = request.Header("x-forwarded-host");
  for (const std::string_view own : {host, forwarded.substr(0, forwarded.find(','))}) {
    if (!authority.empty() && !own.empty() && authority == Authority(own, scheme)) return "";
  }
  return refused("may not use this server without a key");
}

bool Origins::IsPreflight(const http::Request& request) const {
  return request.method == "OPTIONS" && !request.Header("access-control-request-method").empty() &&
         Allowed(request.Header("origin"));
}

http::Response Origins::Preflight(const http::Request& request) const {
  http::Response response{.content_type = "text/plain; charset=utf-8"};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                      {"Access-Control-Max-Age", kPreflightSeconds}};
  // Any header is taken, or ignored, whoever sends it.
  const std::string_view wanted = request.Header("access-control-request-headers");
  const auto fits = [](char c) { return c >= ' ' && c <= '~'; };
  if (!wanted.empty() && std::ranges::all_of(wanted, fits))
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  if (request.Header("access-control-request-private-network") == "true")
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  return response;
}

http::Headers Origins::HeadersFor(const http::Request& request) const {
  if (allowed_.empty()) return {};
  const std::string_view origin = request.Header("origin");
  http::Headers headers;
  const bool all = std::ranges::find(allowed_, kAll) != allowed_.end();
  // The same answer may not be another page's, where it depends on whose page asked.
  if (!all) headers.emplace_back("Vary", "Origin");
  if (origin.empty() || !Allowed(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all ? "*" : std::string(origin));
  headers.emplace_back(
      "Access-Control-Expose-Headers",
      "x-request-id, request-id, x-baton-build, x-baton-ignored, retry-after, retry-after-ms");
  return headers;
}

}  // namespace baton::gateway
