// FleetKey: the secret by which the processes of one `baton serve` know one another, so that no other process
// on this machine can call the workers. It is a file that only its owner may read, in a folder of its own,
// removed with the object.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::cli {

class FleetKey {
 public:
  // In the system's folder for temporary files (TMPDIR, else /tmp).
  static absl::StatusOr<FleetKey> Make();
  FleetKey() = default;
  FleetKey(FleetKey&& other) noexcept;
  FleetKey& operator=(FleetKey&& other) noexcept;
  ~FleetKey();

  // Empty: none was made.
  const std::string& file() const { return file_; }

 private:
  std::string file_;
};

}  // namespace baton::cli
