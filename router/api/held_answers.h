// HeldAnswers: the answers that a router holds, by their tenant's idempotency keys and by their requests'
// ids. One is let go a minute after its last client; before, when bytes run short: of the tenant that holds
// too much, else of all, the one that nobody has used for longest. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "router/api/held_answer.h"

namespace baton::router {

class HeldAnswers {
 public:
  struct Options {
    absl::Duration hold = absl::Minutes(1);
    // Messages, and prompts and tokens of answers that were broken off.
    size_t max_bytes = size_t{128} << 20;
    size_t max_tenant_bytes = size_t{64} << 20;
  };
  HeldAnswers(const Clock& clock, telemetry::Metrics& metrics);
  HeldAnswers(const Clock& clock, telemetry::Metrics& metrics, Options options);
  ~HeldAnswers();

  // `digest`: as HeldAnswer::Name has it. `asked`: of the request.
  //
  // The tenant's answer of this key, or a new one, whose id is `id`. INVALID_ARGUMENT
  // (IDEMPOTENCY_KEY_REUSED): it answers another request.
  absl::StatusOr<std::shared_ptr<HeldAnswer>> ByKey(admission::TenantId tenant, const std::string& key,
                                                    const std::string& digest, const Drawn& asked,
                                                    const std::string& id);
  // The tenant's answer to the request `id`; null: it is not held.
  std::shared_ptr<HeldAnswer> ById(admission::TenantId tenant, const std::string& id);
  // `not_held`: a new one is let go with its last client (RequestOptions.not_held).
  //
  // The same; if it is not held, the answer to the same request that has the key, or a new one, with the key
  // unless another request has that.
  std::shared_ptr<HeldAnswer> ByIdOrNew(admission::TenantId tenant, const std::string& id,
                                        const std::string& key, const std::string& digest, const Drawn& asked,
                                        bool not_held);

  // By the answers: its bytes or its use may have changed; it is gone. Not with its lock held.
  void Update(const HeldAnswer& answer);
  void Forget(const HeldAnswer& answer);

  // Lets go of what has been held for long enough. Tests without a thread call it.
  void LetGo();
  // Starts the thread that does so.
  void Watch();

  // How a client came to a held answer.
  enum class How { kAttached, kContinued, kRecomputed };
  void Resumed(How how);

 private:
  using IdleKey = std::pair<absl::Time, const HeldAnswer*>;
  using Key = std::pair<uint32_t, std::string>;
  struct Held {
    std::shared_ptr<HeldAnswer> answer;
    Drawn asked;  // of the request that it was made for
    bool not_held = false;
    size_t bytes = 0;
    std::optional<absl::Time> idle_since;
  };
  struct TenantUse {
    size_t bytes = 0;
    size_t answers = 0;
    std::set<IdleKey> idle;
  };

  std::shared_ptr<HeldAnswer> Make(admission::TenantId tenant, const std::string& id, const std::string& key,
                                   const std::string& digest, const Drawn& asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is the answer to a request with this digest, which asks for that.
  static bool Answers(const Held& held, const std::string& digest, const Drawn& asked);
  // Takes the answer out, if it is here.
  std::shared_ptr<HeldAnswer> Take(const HeldAnswer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetIdle(Held& held, std::optional<absl::Time> since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out what does not fit; `grown` last.
  std::vector<std::shared_ptr<HeldAnswer>> MakeRoom(const HeldAnswer& grown)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const Options options_;
  prometheus::Gauge& bytes_gauge_;
  prometheus::Gauge& answers_gauge_;
  prometheus::Counter& attached_;
  prometheus::Counter& continued_;
  prometheus::Counter& recomputed_;
  prometheus::Counter& dropped_;

  absl::Mutex mutex_;
  absl::flat_hash_map<const HeldAnswer*, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, HeldAnswer*> by_key_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, HeldAnswer*> by_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, TenantUse> tenants_ ABSL_GUARDED_BY(mutex_);
  std::set<IdleKey> idle_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace baton::router
