// RedisLedger: a ledger in a server of the Redis protocol, for several routers. What survives the server's
// death is up to its configuration (appendonly, replicas). Every day has a hash, whose fields are the sums by
// tenant, key, model and currency.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "router/billing/ledger_store.h"
#include "router/store/redis.h"

namespace baton::router::store {

class RedisLedger : public billing::LedgerStore {
 public:
  // A server that is away is no error: sums wait until it is there. PERMISSION_DENIED: it wants another
  // password or user.
  static absl::StatusOr<std::unique_ptr<RedisLedger>> Open(const StoreOptions& options);

  using LedgerStore::Add;
  absl::Status Add(const std::string& writer, int64_t batch, const std::string& day,
                   const billing::LedgerSheet& sheet, const std::vector<billing::AnswerUse>& uses) override;
  absl::StatusOr<billing::LedgerSheet> Read(const std::string& first, const std::string& last) override;

 private:
  explicit RedisLedger(const StoreOptions& options) : redis_(options) {}
  // Fills in what is kept of each answer, twice.
  absl::Status Find(std::map<std::string, std::pair<std::string, std::string>>* kept);

  Redis redis_;
};

}  // namespace baton::router::store
