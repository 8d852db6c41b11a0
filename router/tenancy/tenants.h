// Tenants: whose request this is, and with it the salt that keeps one tenant's KV apart from another's, and
// what the tenant may use. Without a file there is one open tenant, "default". With one, callers show an API
// key or a client certificate; the file is read again when it changes, and a bad one leaves the old in force.
// Requests hold the Tenant that they came in with. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "protocol/block_hash.h"
#include "router/files/watched_file.h"
#include "router/tenancy/tenants_file.h"

namespace baton::router {

struct Tenant {
  admission::TenantId id;
  std::string name;
  // Its name in metrics: its own for the first ones, "other" for the rest.
  std::string label;
  kv::TenantSalt salt;
  admission::TenantLimits limits;
  int best_priority = admission::kBestPriority;
  bool disabled = false;
  // Control tokens in the text of its conversations are recognised.
  bool control_tokens_in_text = false;
  // The router's own, for what it asks in others' names: it may use every model.
  bool internal = false;
  // Its requests' minimum; nothing: the router's for all.
  std::optional<moderation::Rules> moderation = {};
};

// A caller's credentials, on any transport.
struct Credentials {
  std::string_view key;  // empty: none
  std::vector<std::string> certificate_names;
  // Bytes of all metadata of the call, with 32 more for each field (RFC 9113, 6.5.2).
  size_t metadata_bytes = 0;
};

// The caller.
struct Caller {
  std::shared_ptr<const Tenant> tenant;  // null: a stranger
  // The id of the API key, or the name in the certificate, by which the tenant was found; empty: anonymous.
  std::string key;
};

// Why a caller is refused: a metric label.
enum class Denial { kNoKey, kUnknownKey, kExpiredKey, kUnknownCertificate, kDisabled, kPriority };
std::string_view DenialName(Denial denial);
struct Denied {
  Denial why;
  absl::Status status;  // UNAUTHENTICATED or PERMISSION_DENIED; says what to do, shows no secret
};

class Tenants {
 public:
  struct Options {
    std::string file;
    // Goes into every salt that the file doesn't name. The same on every router of a fleet, or their prefixes
    // are not shared.
    std::string salt_file;
    // Tenants with a metric label of their own.
    int labels = 32;
  };
  // Hears of every tenant, at the start and whenever the file was read.
  using OnTenant = std::function<void(const Tenant&)>;

  static absl::StatusOr<std::unique_ptr<Tenants>> Open(const Options& options, OnTenant on_tenant);
  // Finds the caller by key, else by certificate, else anonymously. Nothing, and why, for a stranger.
  Caller Identify(const Credentials& credentials, Denied* denied) const;

  // Looks at the file every `interval` from now on.
  void Watch(absl::Duration interval = absl::Seconds(1));
  // Reads the file now. An error says what is wrong with it, and nothing has changed.
  absl::Status Reload();

 private:
  struct Key {
    Sha256Digest digest;
    absl::Time not_after;
    std::shared_ptr<const Tenant> tenant;
  };
  struct Table {
    absl::flat_hash_map<std::string, Key> keys;  // by id
    absl::flat_hash_map<std::string, std::shared_ptr<const Tenant>> certificates;
    std::shared_ptr<const Tenant> anonymous;
    std::vector<std::shared_ptr<const Tenant>> all;
  };

  Tenants(const Options& options, OnTenant on_tenant, std::string secret)
      : options_(options),
        on_tenant_(std::move(on_tenant)),
        secret_(std::move(secret)),
        file_(options_.file) {}
  std::shared_ptr<const Table> table() const;
  void Install(std::shared_ptr<const Table> table);
  kv::TenantSalt SaltOf(const TenantEntry& entry) const;

  const Options options_;
  const OnTenant on_tenant_;
  const std::string secret_;
  absl::Mutex reload_mutex_;
  // A name's id and label stay for the life of the process.
  absl::flat_hash_map<std::string, admission::TenantId> ids_ ABSL_GUARDED_BY(reload_mutex_);
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
  WatchedFile file_;  // the last member: its thread reads the others
};

}  // namespace baton::router
