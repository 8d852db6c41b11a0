// Token ids as people type them: "1,2,3". Any thread.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

// INVALID_ARGUMENT, saying which place is wrong, unless `text` is one or more whole numbers from 0 to 2^31 -
// 1 with commas between them; blanks around a number do no harm.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text);

// An option that takes such a list; given again, it adds to `into`, which outlives the parse.
CLI::Option* AddTokenIds(CLI::App& app, const std::string& name, std::vector<int32_t>& into,
                         const std::string& description);

}  // namespace baton::cli
