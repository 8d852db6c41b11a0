// A JSON file of tools for `baton chat`: a list whose entries are {"name", "description", "parameters"}, or
// {"type": "function", "function": {those}} as HTTP APIs have them. Pure but for reading the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"

namespace baton::cli {

// INVALID_ARGUMENT says what is wrong with which entry.
absl::StatusOr<std::vector<v1::Tool>> ParseTools(std::string_view json);
// The same of a file, with its path. NOT_FOUND: it can't be read.
absl::StatusOr<std::vector<v1::Tool>> ReadTools(const std::string& path);

}  // namespace baton::cli
