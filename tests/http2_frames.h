// Frames of HTTP/2 (RFC 9113, 4.1) and fields of HPACK (RFC 7541, 6.2), as bytes: what clients send that no
// library would let them send.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"

namespace baton::http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(size >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame.append(payload);
}

// `how`: the field's first byte. Name and value have fewer than 127 bytes: a length of one byte.
inline std::string Field(char how, std::string_view name, std::string_view value) {
  BATON_CHECK(name.size() < 127 && value.size() < 127);
  std::string text(1, how);
  text += static_cast<char>(name.size());
  text += name;
  text += static_cast<char>(value.size());
  return text.append(value);
}
// A literal without indexing, and one that enters the table.
inline std::string Literal(std::string_view name, std::string_view value) { return Field(0, name, value); }
inline std::string Indexed(std::string_view name, std::string_view value) { return Field(0x40, name, value); }

}  // namespace baton::http2
