// Entry: what stands in a list of workers: an address, host:port, or a name, dns:///host:port, each of whose
// IP addresses is a worker's. Lists: what one source says, by role; the fleet file is such a source. Pure;
// any thread.
//
//   {"decode": ["10.0.0.7:8470", "[fd00::7]:8470", "dns:///decode.example.svc:8470"], "prefill": []}
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/service_address.h"

namespace baton::router::discovery {

using Entry = ServiceAddress;

struct Lists {
  std::vector<Entry> decode;
  std::vector<Entry> prefill;
};

// INVALID_ARGUMENT: one of them is no Entry. `where` opens the message.
absl::StatusOr<std::vector<Entry>> ParseEntries(const std::vector<std::string>& texts,
                                                std::string_view where);

inline constexpr int64_t kMaxFleetFileBytes = 16 << 20;
// Each entry of a fleet file costs the router a connection.
inline constexpr size_t kMaxFleetFileEntries = 4096;
// Strict: what is unknown or not an entry, and an entry too many, refuses the whole file. A list that is
// missing is empty. `file` is for messages.
absl::StatusOr<Lists> ParseFleetFile(std::string_view text, std::string_view file);

}  // namespace baton::router::discovery
