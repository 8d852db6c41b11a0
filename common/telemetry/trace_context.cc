#include "common/telemetry/trace_context.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"

namespace baton::telemetry {
namespace {

// version "-" trace-id "-" parent-id "-" trace-flags
constexpr size_t kVersionEnd = 2, kTraceIdBegin = 3, kTraceIdEnd = 35, kSpanIdBegin = 36, kSpanIdEnd = 52;
constexpr size_t kFlagsBegin = 53, kTraceparentBytes = 55;
constexpr uint8_t kSampled = 0x01;
constexpr size_t kMaxMembers = 32, kMaxKey = 256, kMaxTenant = 241, kMaxSystem = 14, kMaxValue = 256;
// More than the 512 characters that the specification asks to be handed on at least.
constexpr size_t kMaxState = 4096;

// Blanks around a header's value do not belong to it.
std::string_view Stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;  // upper case is not allowed
}

bool ReadHex(std::string_view text, std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = Digit(text[2 * i]), low = Digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes) return std::nullopt;
  if (text[kVersionEnd] != '-' || text[kTraceIdEnd] != '-' || text[kSpanIdEnd] != '-') return std::nullopt;
  std::array<uint8_t, 1> version, flags;
  TraceContext context;
  if (!ReadHex(text, version) || version[0] == 0xff ||
      !ReadHex(text.substr(kTraceIdBegin), context.trace_id) ||
      !ReadHex(text.substr(kSpanIdBegin), context.span_id) || !ReadHex(text.substr(kFlagsBegin), flags)) {
    return std::nullopt;
  }
  if (text.size() > kTraceparentBytes && (version[0] == 0 || text[kTraceparentBytes] != '-')) {
    return std::nullopt;
  }
  if (!context.valid()) return std::nullopt;
  context.sampled = (flags[0] & kSampled) != 0;
  return context;
}

bool IsKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || std::strchr("_-*/", c) != nullptr;
}

bool IsKeyPart(std::string_view part, size_t most, bool may_begin_with_digit) {
  if (part.empty() || part.size() > most || !std::all_of(part.begin(), part.end(), IsKeyCharacter))
    return false;
  return (part[0] >= 'a' && part[0] <= 'z') || (may_begin_with_digit && part[0] >= '0' && part[0] <= '9');
}

bool IsKey(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos) return IsKeyPart(key, kMaxKey, false);
  return IsKeyPart(key.substr(0, at), kMaxTenant, true) && IsKeyPart(key.substr(at + 1), kMaxSystem, false);
}

bool IsValue(std::string_view value) {
  return !value.empty() && value.size() <= kMaxValue && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= 0x20 && c <= 0x7e && c != ',' && c != '='; });
}

// Empty if it breaks the rules.
std::string ParseTracestate(std::span<const std::string_view> values) {
  std::string state;
  std::vector<std::string_view> keys;
  for (std::string_view rest : values) {
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string_view member = Stripped(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (member.empty()) continue;
      const size_t equals = member.find('=');
      if (equals == std::string_view::npos || !IsKey(member.substr(0, equals)) ||
          !IsValue(member.substr(equals + 1))) {
        return "";
      }
      keys.push_back(member.substr(0, equals));
      if (keys.size() > kMaxMembers || state.size() + member.size() > kMaxState) return "";
      if (!state.empty()) state += ',';
      state += member;
    }
  }
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) == keys.end() ? state : std::string();
}

template <size_t kBytes>
std::array<uint8_t, kBytes> RandomBytes() {
  std::array<uint8_t, kBytes> bytes;
  do {
    for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
      const uint64_t bits = RandomU64();
      std::memcpy(bytes.data() + i, &bits, sizeof(bits));
    }
  } while (bytes == std::array<uint8_t, kBytes>{});
  return bytes;
}

}  // namespace

TraceId NewTraceId() { return RandomBytes<16>(); }
SpanId NewSpanId() { return RandomBytes<8>(); }

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 0xf]);
  }
  return text;
}

std::string TraceContext::Traceparent() const {
  if (!valid()) return "";
  return absl::StrCat("00-", Hex(trace_id), "-", Hex(span_id), sampled ? "-01" : "-00");
}

TraceContext TraceContext::Child() const {
  TraceContext child = *this;
  child.span_id = NewSpanId();
  return child;
}

std::optional<TraceContext> ParseTraceContext(std::span<const std::string_view> traceparent,
                                              std::span<const std::string_view> tracestate) {
  if (traceparent.size() != 1) return std::nullopt;
  std::optional<TraceContext> context = ParseTraceparent(Stripped(traceparent.front()));
  if (context.has_value()) context->state = ParseTracestate(tracestate);
  return context;
}

}  // namespace baton::telemetry
