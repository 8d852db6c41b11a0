#include "router/discovery/entry.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/base/status.h"
#include "common/model/config/json_fields.h"

namespace baton::router::discovery {
namespace {

constexpr std::string_view kDns = "dns:///";

// One way to write an IPv6 address, so that the same one from two sources is seen to be the same.
std::string Canonical(std::string_view host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1 &&
      inet_ntop(AF_INET6, &address, text, sizeof(text)) != nullptr) {
    return text;
  }
  return std::string(host);
}

absl::StatusOr<std::vector<Entry>> ReadList(const model::Json& root, const char* name,
                                            std::string_view file) {
  std::vector<Entry> entries;
  const auto found = root.find(name);
  if (found == root.end()) return entries;
  if (!found->is_array()) {
    return absl::InvalidArgumentError(fmt::format("{}: field \"{}\" is not a list", file, name));
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const model::Json& value = (*found)[i];
    const std::string where = fmt::format("{}: {}[{}]", file, name, i);
    if (!value.is_string()) {
      return absl::InvalidArgumentError(fmt::format("{}: {} is not text", where, model::Shown(value)));
    }
    absl::StatusOr<Entry> entry = ParseEntry(value.get_ref<const std::string&>());
    if (!entry.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", where, std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace

std::string JoinHostPort(std::string_view host, uint16_t port) {
  const bool plain = host.find(':') == std::string_view::npos;
  return plain ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string Entry::text() const { return (is_name ? std::string(kDns) : "") + JoinHostPort(host, port); }

absl::StatusOr<Entry> ParseEntry(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" {}: write HOST:PORT, [IPV6]:PORT or dns:///NAME:PORT", text, why));
  };
  Entry entry;
  std::string_view rest = text;
  entry.is_name = rest.starts_with(kDns);
  if (entry.is_name) rest.remove_prefix(kDns.size());
  if (rest.find('/') != std::string_view::npos) return wrong("is no address");
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  const std::string_view port = rest.substr(colon + 1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), entry.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || entry.port == 0) {
    return wrong("has no port from 1 to 65535");
  }
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong("has an IPv6 address without brackets");
  }
  const auto stray = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '[' || c == ']'; };
  if (host.empty() || std::any_of(host.begin(), host.end(), stray)) return wrong("has no host");
  entry.host = Canonical(host);
  return entry;
}

absl::StatusOr<std::vector<Entry>> ParseEntries(const std::vector<std::string>& texts,
                                                std::string_view where) {
  std::vector<Entry> entries;
  for (const std::string& text : texts) {
    absl::StatusOr<Entry> entry = ParseEntry(text);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", where, std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<Lists> ParseFleetFile(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(text, file));
  if (!root.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", file));
  for (const auto& [name, value] : root.items()) {
    if (name != "decode" && name != "prefill") {
      return absl::InvalidArgumentError(
          fmt::format("{}: unknown field \"{}\"; there are \"decode\" and \"prefill\"", file, name));
    }
  }
  Lists lists;
  BATON_ASSIGN_OR_RETURN(lists.decode, ReadList(root, "decode", file));
  BATON_ASSIGN_OR_RETURN(lists.prefill, ReadList(root, "prefill", file));
  if (const size_t entries = lists.decode.size() + lists.prefill.size(); entries > kMaxFleetFileEntries) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} entries; a router watches at most {}: split the fleet among several routers",
                    file, entries, kMaxFleetFileEntries));
  }
  return lists;
}

}  // namespace baton::router::discovery
