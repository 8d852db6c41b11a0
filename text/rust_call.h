// The C++ side of baton_text.h: calls, and C++ ownership of the objects that they return. Internal to this
// room.
#pragma once

#include <string>
#include <string_view>

#include "absl/base/dynamic_annotations.h"
#include "absl/status/status.h"
#include "text/rust/baton_text.h"

namespace baton::text {

// A call across the border. The Rust side is not instrumented: ThreadSanitizer sees the memory that it
// allocates, copies and compares through libc, and not its locks, so it is turned off during the
// call. What C++ does with handles and results is checked.
template <typename Function, typename... Arguments>
auto CallRust(Function function, Arguments... arguments) {
  struct Unseen {
    Unseen() { ABSL_ANNOTATE_IGNORE_READS_AND_WRITES_BEGIN(); }
    ~Unseen() { ABSL_ANNOTATE_IGNORE_READS_AND_WRITES_END(); }
  } unseen;
  return function(arguments...);
}

// Copies and frees.
inline std::string Take(baton_text_bytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  CallRust(baton_text_bytes_free, bytes);
  return text;
}

inline absl::Status TakeError(int32_t code, baton_text_bytes error) {
  absl::StatusCode status = absl::StatusCode::kInternal;
  if (code == BATON_TEXT_INVALID) status = absl::StatusCode::kInvalidArgument;
  if (code == BATON_TEXT_TOO_LONG) status = absl::StatusCode::kOutOfRange;
  if (code == BATON_TEXT_STOPPED) status = absl::StatusCode::kCancelled;
  return absl::Status(status, Take(error));
}

inline const uint8_t* Data(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace baton::text
