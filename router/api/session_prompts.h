// SessionPrompts: of each session, what its last prompt was, so that a prompt that finds less in the cache
// than it could have found is told why (v1::CacheMiss). Hashes only, made with the tenant's salt: neither
// text nor tokens, and no tenant can find another's. Bounded in count and bytes; the session that was used
// least lately is forgotten first. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/generation.pb.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"
#include "protocol/block_hash.h"
#include "router/dispatch/placement.h"

namespace baton::router {

// Hashes of a prompt's sections.
struct PromptSections {
  uint64_t model = 0;
  // The tools, and the further variables of the template.
  uint64_t tools = 0;
  uint64_t system = 0;
};

// The sections of a request for the model with this name; without a conversation, all of the prompt is
// messages.
PromptSections SectionsOf(const std::string& model, const v1::Conversation* conversation,
                          const kv::TenantSalt& salt);

// The name of a session among those of all tenants.
kv::BlockHash SessionKey(const std::string& session_id, const kv::TenantSalt& salt);

struct SessionPrompt {
  PromptSections sections;
  // The first 64 bits of each full block's hash.
  std::vector<uint64_t> blocks;
  // The decode worker that it ran on.
  Incarnation worker;
};

std::vector<uint64_t> ShortHashes(std::span<const kv::BlockHash> chain);

// Why tokens of a prompt were computed that could have been expected in the cache: `prompt` ran on
// prompt.worker, which found, or had from others, the KV of `cached_tokens`. `last`: of the same session,
// null if there is none. Nothing if less than a block is missing. The larger of two reasons.
std::optional<v1::CacheMiss> MissOf(const SessionPrompt* last, const SessionPrompt& prompt,
                                    int64_t prompt_tokens, int64_t cached_tokens,
                                    const LastWorker& last_worker);

// A metric label: "first", "worker_lost", ...
std::string MissReasonName(v1::CacheMiss::Reason reason);

class SessionPrompts {
 public:
  struct Limits {
    size_t sessions = 65536;
    size_t bytes = size_t{64} << 20;
  };
  // Blocks that are kept of a prompt; of a longer one, what comes behind is never missed.
  static constexpr size_t kMaxBlocks = 8192;

  explicit SessionPrompts(Limits limits) : limits_(limits) {}
  SessionPrompts() : SessionPrompts(Limits()) {}

  // Null: not known, or forgotten.
  std::shared_ptr<const SessionPrompt> Find(const kv::BlockHash& session);
  // Replaces what was known of the session.
  void Remember(const kv::BlockHash& session, SessionPrompt prompt);

  size_t size() const;
  size_t bytes() const;

 private:
  struct Entry {
    kv::BlockHash session;
    std::shared_ptr<const SessionPrompt> prompt;
  };
  static size_t BytesOf(const SessionPrompt& prompt);

  const Limits limits_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the one used last first
  absl::flat_hash_map<kv::BlockHash, std::list<Entry>::iterator> by_session_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::router
