// What the Rust side hands over (baton_text.h), taken into C++ ownership. Internal to this room.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/text/rust/baton_text.h"

namespace baton::text {

// Copies and frees.
inline std::string Take(baton_text_bytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  baton_text_bytes_free(bytes);
  return text;
}

inline absl::Status TakeError(int32_t code, baton_text_bytes error) {
  return absl::Status(
      code == BATON_TEXT_INVALID ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal,
      Take(error));
}

inline const uint8_t* Data(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace baton::text
