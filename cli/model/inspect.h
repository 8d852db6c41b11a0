// What `baton model inspect` says of a model folder. Pure functions over a ModelSummary, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/show/terminal.h"
#include "common/model/summary.h"

namespace baton::cli {

// Several lines. `memories`: how many tokens' KV fit into so many bytes?
std::string RenderModel(const std::string& name, const model::ModelSummary& summary,
                        const std::vector<int64_t>& memories, const Terminal& terminal);

// Bytes and tokens.
nlohmann::ordered_json ModelToJson(const std::string& name, const model::ModelSummary& summary,
                                   const std::vector<int64_t>& memories);

}  // namespace baton::cli
