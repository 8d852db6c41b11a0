// Strict JSON: text from people and clients becomes a value in time and memory linear in its bytes, or is
// refused: text that is not JSON, nests too deep or holds more values than its reader allows, and objects
// with a duplicate key, because two readers could then see two different things. Bounds are checked while the
// text is read, so a refused text costs no more than the bound. Pure functions that never throw;
// any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::json {

struct Limits {
  // Depth of objects and lists. No real file is deeper, and code that recurses is safe at this depth.
  int depth = 64;
  // Counts objects, lists, and all values in them.
  int64_t values = std::numeric_limits<int64_t>::max();
  // Counts those of them that cost most: objects, lists, and members of objects.
  int64_t members = std::numeric_limits<int64_t>::max();
};

// INVALID_ARGUMENT says what is wrong, and at which byte and line if it is no JSON. Json is nlohmann::json or
// nlohmann::ordered_json. `values`, if not null, receives how many there are.
template <typename Json>
absl::StatusOr<Json> Parse(std::string_view text, const Limits& limits = {}, int64_t* values = nullptr);

// Adds a member that the object is known to lack, in constant time (ordered_json's own operators search the
// whole object for each key).
void Append(nlohmann::ordered_json* object, std::string key, nlohmann::ordered_json value);

}  // namespace baton::json
