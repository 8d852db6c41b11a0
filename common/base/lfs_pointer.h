// LFS pointer: the few lines that `git clone` without Git LFS leaves in the place of a large file. Pure, any
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// INVALID_ARGUMENT, naming `path` and how to get the file itself, if `content`, of which the beginning is
// enough, is a pointer (of the specification of Git LFS, version 1).
absl::Status RefuseLfsPointer(std::string_view path, std::string_view content);
absl::Status RefuseLfsPointer(std::string_view path, std::span<const std::byte> content);

}  // namespace baton
