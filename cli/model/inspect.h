// The output of `baton model inspect`. Pure functions over a ModelSummary, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/show/terminal.h"
#include "engine/model/summary.h"

namespace baton::cli {

// Sizes of memory that a worker may be given.
struct Budgets {
  std::vector<int64_t> kv = {};       // how many tokens' KV fit?
  std::vector<int64_t> experts = {};  // how many of a mixture's experts are in memory at once?
};

// Several lines.
std::string RenderModel(const std::string& name, const model::ModelSummary& summary, const Budgets& budgets,
                        const Terminal& terminal);

// Bytes and tokens.
nlohmann::ordered_json ModelToJson(const std::string& name, const model::ModelSummary& summary,
                                   const Budgets& budgets);

}  // namespace baton::cli
