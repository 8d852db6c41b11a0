// LedgerStore: where the sums of what was used are kept, by day, tenant, key, model and currency. Several
// processes may use one. A batch is added as a whole or not at all, and once: it carries its writer's name
// and number, so adding it again after a doubtful failure changes nothing. One thread; calls wait for the
// disk or the network.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/billing/token_counts.h"

namespace baton::router::billing {

struct LedgerKey {
  std::string day;  // in UTC, "2026-11-22"
  std::string tenant;
  std::string key;  // id of the API key, or the name in the certificate; empty: anonymous
  std::string model;
  std::string currency;  // empty: the model had no price
  auto operator<=>(const LedgerKey&) const = default;
};

struct LedgerSums {
  int64_t requests = 0;  // that a worker accepted
  int64_t failed = 0;    // of these, those that did not end well
  TokenCounts tokens;
  int64_t units = 0;  // of the currency
  int64_t picos = 0;  // and picounits, fewer than one unit has

  void Add(const LedgerSums& other);
  // A cost in picounits.
  void AddCost(int64_t picounits);
  bool operator==(const LedgerSums&) const = default;
};

using LedgerSheet = std::map<LedgerKey, LedgerSums>;

// The numbers of a LedgerSums, or of a constant one, in the order in which stores keep them; the cost's units
// and picounits are last.
template <typename Sums>
auto LedgerColumns(Sums& sums) {
  return std::array{&sums.requests,
                    &sums.failed,
                    &sums.tokens.decode_cached,
                    &sums.tokens.prefill_cached,
                    &sums.tokens.written_5m,
                    &sums.tokens.written_1h,
                    &sums.tokens.plain,
                    &sums.tokens.completion,
                    &sums.tokens.thinking,
                    &sums.units,
                    &sums.picos};
}

// The use of an answer that several calls may have computed, on several routers, up to now. Each records it
// as far as it knows: the store adds what of it was not added before.
struct AnswerUse {
  // Unique among all answers, of all tenants, on all routers.
  std::string answer;
  LedgerKey key;
  LedgerSums prompt;  // its kinds and their cost
  LedgerSums rest;    // the answer's, with `failed` for all
};
// `charged`: kept by stores for an answer, decimal numbers with spaces between them. Empty: nothing was
// added. Returns what of `use` is to be added, and makes `charged` what is kept then. A prompt is added once;
// of the rest, what is more than before. Throws nothing: text that is none of this counts as empty.
LedgerSums AddedUse(const AnswerUse& use, std::string* charged);
// For so many seconds it is kept: as long as an answer may take that goes on after a cut.
inline constexpr int kAnswerSeconds = 3600;

class LedgerStore {
 public:
  virtual ~LedgerStore() = default;

  // Adds the sheet's sums to those that are kept, unless the writer has added this batch, or a later one,
  // before. `writer`: unique among all processes that ever write there. `day`: today's, after which writers
  // of earlier months are forgotten. RESOURCE_EXHAUSTED: there is no room. `uses`: added as AddedUse says.
  virtual absl::Status Add(const std::string& writer, int64_t batch, const std::string& day,
                           const LedgerSheet& sheet, const std::vector<AnswerUse>& uses) = 0;
  absl::Status Add(const std::string& writer, int64_t batch, const std::string& day,
                   const LedgerSheet& sheet) {
    return Add(writer, batch, day, sheet, {});
  }

  // The sums of the days from `first` to `last`, both included; empty: no limit.
  virtual absl::StatusOr<LedgerSheet> Read(const std::string& first, const std::string& last) = 0;
};

}  // namespace baton::router::billing
