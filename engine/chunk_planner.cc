#include "engine/chunk_planner.h"

#include <algorithm>
#include <cmath>

#include "common/base/ids.h"

namespace baton::engine {

int64_t ChunkPlanner::Take(int64_t computed, int64_t remaining) {
  int64_t rows = std::min({remaining, limits_.chunk_tokens, limits_.token_budget});
  if (rows > 0 && std::isfinite(limits_.seconds)) {
    int64_t within = forecast::RowsWithin(limits_.seconds, cost_.token, cost_.pair, computed);
    within -= within % kBlockTokens;
    rows = std::min(rows, taken_ ? within : std::max<int64_t>(within, kBlockTokens));
  }
  if (limits_.whole_blocks && rows < remaining) rows -= rows % kBlockTokens;
  if (rows <= 0) return 0;
  taken_ = true;
  limits_.token_budget -= rows;
  forecast::StepLoad chunk;
  chunk.AddRows(computed, rows);
  limits_.seconds -= cost_.PromptSeconds(chunk);
  return rows;
}

}  // namespace baton::engine
