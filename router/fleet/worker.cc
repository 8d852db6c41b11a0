#include "router/fleet/worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/hash/hash.h"

namespace baton::router::fleet {
namespace {

// More than any worker has, and little enough that sums over a fleet stay numbers: what a worker says of
// itself comes from another process.
constexpr uint64_t kMaxReported = uint64_t{1} << 48;

int64_t Bounded(uint64_t reported) { return static_cast<int64_t>(std::min(reported, kMaxReported)); }

// The same for the number of peers; and the bounds of a rate and of a number of seconds.
constexpr int kMaxPeers = 256;
constexpr double kMinRate = 1e3, kMaxRate = 1e15, kMaxBase = 60;

double ValueBytes(std::string_view dtype) {
  if (dtype == "f32") return 4;
  if (dtype == "i4") return 0.5;
  return dtype == "f8" || dtype == "i8" ? 1 : 2;
}

double TokenBytes(const baton::fleet::v1::KvLayout& kv) {
  const double values = static_cast<double>(kv.layers()) * kv.kv_heads() * kv.head_dim();
  return values * (ValueBytes(kv.key_dtype()) + ValueBytes(kv.value_dtype()));
}

}  // namespace

uint64_t KeyOf(std::string_view name) { return name.empty() ? 0 : std::max<uint64_t>(1, absl::HashOf(name)); }

Worker::Worker(Identity identity, WorkerSlot slot)
    : identity_(std::move(identity)),
      key_(KeyOf(identity_.id)),
      domain_key_(KeyOf(identity_.link_domain)),
      token_bytes_(TokenBytes(identity_.fingerprint.kv())),
      slot_(slot.value()) {}

void Worker::ReportPeers(const google::protobuf::RepeatedPtrField<baton::fleet::v1::PeerRate>& rates) {
  auto costs = std::make_shared<std::vector<placement::PeerCost>>();
  for (const baton::fleet::v1::PeerRate& rate : rates) {
    if (std::ssize(*costs) >= kMaxPeers) break;
    const double base = rate.base_seconds(), per_second = rate.bytes_per_second();
    if (rate.worker().empty() || !(base >= 0 && base <= kMaxBase)) continue;
    if (!(per_second >= kMinRate && per_second <= kMaxRate)) continue;
    costs->push_back({.peer = KeyOf(rate.worker()), .base = base, .token = token_bytes_ / per_second});
  }
  std::sort(costs->begin(), costs->end(),
            [](const placement::PeerCost& a, const placement::PeerCost& b) { return a.peer < b.peer; });
  absl::MutexLock lock(&peers_mutex_);
  peer_costs_ = std::move(costs);
}

void Worker::ReportDisk(const baton::fleet::v1::DiskRate& rate) {
  const double base = rate.base_seconds(), per_second = rate.bytes_per_second();
  if (!(base >= 0 && base <= kMaxBase) || !(per_second >= kMinRate)) return;
  disk_base_.store(base, std::memory_order_relaxed);
  disk_token_.store(token_bytes_ / per_second, std::memory_order_relaxed);
}

std::shared_ptr<const std::vector<placement::PeerCost>> Worker::peer_costs() const {
  absl::MutexLock lock(&peers_mutex_);
  return peer_costs_;
}

void Worker::Report(const baton::fleet::v1::Load& load, std::string_view router_id) {
  int64_t own = 0, others_tokens = 0;
  for (const auto& [router, booked] : load.booked()) {
    if (router == router_id) {
      own = booked.requests();
    } else {
      others_tokens = Bounded(static_cast<uint64_t>(others_tokens + Bounded(booked.tokens())));
    }
  }
  reported_tokens_.store(others_tokens, std::memory_order_relaxed);
  const int64_t all = int64_t{load.running()} + load.queued();
  reported_requests_.store(std::max<int64_t>(0, all - own), std::memory_order_relaxed);
  reported_running_.store(int64_t{load.running()}, std::memory_order_relaxed);
  reported_queued_.store(int64_t{load.queued()}, std::memory_order_relaxed);
  queued_tokens_.store(Bounded(load.queued_tokens()), std::memory_order_relaxed);
  answers_in_time_.store(int64_t{load.answers_in_time()}, std::memory_order_relaxed);
  total_blocks_.store(Bounded(load.total_blocks()), std::memory_order_relaxed);
  free_blocks_.store(Bounded(load.free_blocks()), std::memory_order_relaxed);
  cached_blocks_.store(Bounded(load.cached_blocks()), std::memory_order_relaxed);
  leased_blocks_.store(Bounded(load.leased_blocks()), std::memory_order_relaxed);
  breaker_.OnRelief();
}

int64_t Worker::Requests() const {
  const int64_t reported = reported_requests_.load(std::memory_order_relaxed);
  // A decode worker's report leaves this router's requests out; a prefill worker's includes them.
  return identity_.role == Role::kDecode ? reported + booked_requests_.load(std::memory_order_relaxed)
                                         : std::max(reported, prompt_count_.load(std::memory_order_relaxed));
}

int64_t Worker::QueuedTokens() const {
  return std::max(queued_tokens_.load(std::memory_order_relaxed),
                  prompt_tokens_.load(std::memory_order_relaxed));
}

int64_t Worker::ContextTokens() const {
  return reported_tokens_.load(std::memory_order_relaxed) + booked_tokens_.load(std::memory_order_relaxed);
}

void Worker::Book(int64_t tokens) {
  booked_requests_.fetch_add(1, std::memory_order_relaxed);
  booked_tokens_.fetch_add(tokens, std::memory_order_relaxed);
}

void Worker::Unbook(int64_t tokens) {
  booked_requests_.fetch_sub(1, std::memory_order_relaxed);
  booked_tokens_.fetch_sub(tokens, std::memory_order_relaxed);
}

uint64_t Worker::BookPrompt(BookedPrompt prompt, absl::Time now) {
  prompt_count_.fetch_add(1, std::memory_order_relaxed);
  prompt_tokens_.fetch_add(prompt.tokens, std::memory_order_relaxed);
  absl::MutexLock lock(&prompts_mutex_);
  prompt.id = ++last_prompt_;
  prompt.since = now;
  if (prompts_.booked.empty()) prompts_.busy_since = now;
  prompts_.booked.push_back(prompt);
  return prompt.id;
}

void Worker::UnbookPrompt(uint64_t id, absl::Time now) {
  absl::MutexLock lock(&prompts_mutex_);
  const auto found = std::find_if(prompts_.booked.begin(), prompts_.booked.end(),
                                  [id](const BookedPrompt& prompt) { return prompt.id == id; });
  prompt_count_.fetch_sub(1, std::memory_order_relaxed);
  prompt_tokens_.fetch_sub(found->tokens, std::memory_order_relaxed);
  *found = prompts_.booked.back();
  prompts_.booked.pop_back();
  if (prompts_.booked.empty()) {
    prompts_.busy_since = absl::InfiniteFuture();
  } else if (now != absl::InfiniteFuture()) {
    prompts_.busy_since = now;
  }
}

Worker::Prompts Worker::prompts() const {
  if (prompt_count_.load(std::memory_order_relaxed) == 0) return {};
  absl::MutexLock lock(&prompts_mutex_);
  return prompts_;
}

}  // namespace baton::router::fleet
