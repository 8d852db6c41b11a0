// Small text files of a model folder. Internal to this room; any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::text {

// The whole file. NOT_FOUND if there is none, otherwise INVALID_ARGUMENT; both name the path. Files over 1
// GiB are refused.
absl::StatusOr<std::string> ReadModelFile(const std::string& path);

// The same error, with the file in front.
absl::Status InFile(const std::string& path, const absl::Status& status);

}  // namespace baton::text
