#include "gateway/http/grpc_framing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton::gateway::http {
namespace {

constexpr size_t kPrefixBytes = 5;
constexpr std::string_view kBinary = "-bin";

bool IsTransport(std::string_view name) {
  static constexpr std::string_view kNames[] = {"te",
                                                "host",
                                                "connection",
                                                "content-type",
                                                "content-length",
                                                "accept-encoding",
                                                "user-agent",
                                                "keep-alive",
                                                "proxy-connection",
                                                "transfer-encoding",
                                                "upgrade",
                                                "expect"};
  if (std::ranges::find(kNames, name) != std::end(kNames) || name.starts_with(':')) return true;
  // The rest of gRPC's own names are for the next hop.
  return name.starts_with("grpc-") && name != "grpc-trace-bin" && name != "grpc-tags-bin";
}

bool IsName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

bool IsValue(std::string_view name, std::string_view value) {
  if (!name.ends_with(kBinary)) {
    return std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
  }
  std::string unpacked;
  return absl::Base64Unescape(std::string(value), &unpacked);
}

}  // namespace

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  content_type.remove_prefix(kType.size());
  return content_type.empty() || content_type[0] == '+' || content_type[0] == ';' || content_type[0] == ' ';
}

MessageReader::Found MessageReader::Read(std::string_view* bytes) {
  if (prefix_.size() < kPrefixBytes) {
    const std::string_view more = bytes->substr(0, kPrefixBytes - prefix_.size());
    prefix_ += more;
    bytes->remove_prefix(more.size());
    if (prefix_.size() < kPrefixBytes) return Found::kNothing;
    if (prefix_[0] != 0) return Found::kCompressed;
    length_ = 0;
    for (size_t i = 1; i < kPrefixBytes; ++i) length_ = length_ << 8 | static_cast<unsigned char>(prefix_[i]);
    if (length_ > max_bytes_) return Found::kTooLong;
  }
  const std::string_view more = bytes->substr(0, length_ - message_.size());
  message_ += more;
  bytes->remove_prefix(more.size());
  return message_.size() == length_ ? Found::kMessage : Found::kNothing;
}

std::string MessageReader::Take() {
  prefix_.clear();
  return std::exchange(message_, {});
}

std::string MessagePrefix(size_t bytes) {
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(bytes >> shift & 0xff);
  return prefix;
}

absl::StatusOr<absl::Duration> ParseTimeout(std::string_view text) {
  constexpr size_t kMaxDigits = 8;
  int64_t number = 0;
  const std::string_view digits = text.substr(0, text.empty() ? 0 : text.size() - 1);
  const bool all_digits =
      std::ranges::all_of(digits, [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  if (!digits.empty() && digits.size() <= kMaxDigits && all_digits &&
      absl::SimpleAtoi(std::string(digits), &number)) {
    switch (text.back()) {
      case 'H':
        return absl::Hours(number);
      case 'M':
        return absl::Minutes(number);
      case 'S':
        return absl::Seconds(number);
      case 'm':
        return absl::Milliseconds(number);
      case 'u':
        return absl::Microseconds(number);
      case 'n':
        return absl::Nanoseconds(number);
      default:
        break;
    }
  }
  return absl::InvalidArgumentError("grpc-timeout has to be up to eight digits and one of H, M, S, m, u, n");
}

std::string PercentEncoded(std::string_view message) {
  std::string encoded;
  for (const char c : message) {
    if (c >= ' ' && c <= '~' && c != '%') {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%", absl::AsciiStrToUpper(absl::BytesToHexString(std::string(1, c))));
    }
  }
  return encoded;
}

absl::StatusOr<Headers> MetadataOf(const Headers& headers) {
  Headers metadata;
  for (const auto& [name, value] : headers) {
    if (IsTransport(name)) continue;
    if (!IsName(name) || !IsValue(name, value)) {
      return absl::InvalidArgumentError(absl::StrCat("metadata \"", absl::CHexEscape(name.substr(0, 64)),
                                                     "\": names are made of a-z, 0-9, -, _ and ., values of "
                                                     "printable ASCII, or of base64 behind \"-bin\""));
    }
    metadata.emplace_back(name, value);
  }
  return metadata;
}

}  // namespace baton::gateway::http
