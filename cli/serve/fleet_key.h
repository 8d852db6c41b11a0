// FleetKey: the secret that the processes of one `baton serve` show to one another, so that nobody else on
// this machine can speak to the workers. A file that its owner alone may read, in a folder of its own, gone
// with the object.
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
