#include "router/api/held_answers.h"

#include "common/rpc/status.h"

namespace baton::router {
namespace {

prometheus::Counter& ResumedCounter(telemetry::Metrics& metrics, const char* how) {
  return metrics.Counter("baton_router_answers_resumed_total",
                         "Clients that came to an answer that a router held, by what was done for them",
                         {{"how", how}});
}

absl::Status Reused() {
  return rpc::WithReason(
      absl::InvalidArgumentError(
          "options.idempotency_key: it names the answer to another request; draw a new key for each request"),
      v1::REASON_IDEMPOTENCY_KEY_REUSED);
}

}  // namespace

HeldAnswers::HeldAnswers(const Clock& clock, telemetry::Metrics& metrics)
    : HeldAnswers(clock, metrics, Options()) {}

HeldAnswers::HeldAnswers(const Clock& clock, telemetry::Metrics& metrics, Options options)
    : clock_(clock),
      options_(options),
      bytes_gauge_(metrics.Gauge("baton_router_held_answers_bytes",
                                 "Memory of answers that clients may resume or ask for again")),
      answers_gauge_(metrics.Gauge("baton_router_held_answers", "Those answers")),
      attached_(ResumedCounter(metrics, "attached")),
      continued_(ResumedCounter(metrics, "continued")),
      recomputed_(ResumedCounter(metrics, "recomputed")),
      dropped_(metrics.Counter("baton_router_held_answers_dropped_total",
                               "Answers that were let go early, because their memory was needed")) {}

HeldAnswers::~HeldAnswers() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (watch_.joinable()) watch_.join();
}

std::shared_ptr<HeldAnswer> HeldAnswers::Make(admission::TenantId tenant, const std::string& id,
                                              const std::string& key, const std::string& digest,
                                              const Drawn& asked) {
  auto answer = std::make_shared<HeldAnswer>(
      HeldAnswer::Name{.tenant = tenant, .id = id, .key = key, .digest = digest}, *this);
  held_.emplace(answer.get(), Held{.answer = answer, .asked = asked});
  if (!key.empty()) by_key_[{tenant.value(), key}] = answer.get();
  by_id_[{tenant.value(), id}] = answer.get();
  ++tenants_[tenant.value()].answers;
  answers_gauge_.Set(static_cast<double>(held_.size()));
  return answer;
}

bool HeldAnswers::Answers(const Held& held, const std::string& digest, const Drawn& asked) {
  if (held.answer->name().digest != digest) return false;
  // A client that has heard what was drawn may say so.
  const Drawn drawn = held.answer->drawn().value_or(Drawn());
  const bool seed = !asked.seed.has_value() || asked.seed == held.asked.seed || asked.seed == drawn.seed;
  return seed && (asked.build.empty() || asked.build == held.asked.build || asked.build == drawn.build);
}

absl::StatusOr<std::shared_ptr<HeldAnswer>> HeldAnswers::ByKey(admission::TenantId tenant,
                                                               const std::string& key,
                                                               const std::string& digest, const Drawn& asked,
                                                               const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find({tenant.value(), key});
  if (found == by_key_.end()) return Make(tenant, id, key, digest, asked);
  const Held& held = held_.at(found->second);
  if (!Answers(held, digest, asked)) return Reused();
  return held.answer;
}

std::shared_ptr<HeldAnswer> HeldAnswers::ById(admission::TenantId tenant, const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_id_.find({tenant.value(), id});
  return found == by_id_.end() ? nullptr : held_.at(found->second).answer;
}

std::shared_ptr<HeldAnswer> HeldAnswers::ByIdOrNew(admission::TenantId tenant, const std::string& id,
                                                   const std::string& key, const std::string& digest,
                                                   const Drawn& asked, bool not_held) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_id_.find({tenant.value(), id});
  if (found != by_id_.end()) return held_.at(found->second).answer;
  // The client may have asked this router first, and not have heard of it.
  const auto same = by_key_.find({tenant.value(), key});
  if (same == by_key_.end()) {
    auto made = Make(tenant, id, key, digest, asked);
    held_.at(made.get()).not_held = not_held;
    return made;
  }
  const Held& held = held_.at(same->second);
  return Answers(held, digest, asked) ? held.answer : Make(tenant, id, "", digest, asked);
}

void HeldAnswers::SetIdle(Held& held, std::optional<absl::Time> since) {
  TenantUse& use = tenants_[held.answer->name().tenant.value()];
  if (held.idle_since.has_value()) {
    idle_.erase({*held.idle_since, held.answer.get()});
    use.idle.erase({*held.idle_since, held.answer.get()});
  }
  held.idle_since = since;
  if (!since.has_value()) return;
  idle_.insert({*since, held.answer.get()});
  use.idle.insert({*since, held.answer.get()});
}

std::shared_ptr<HeldAnswer> HeldAnswers::Take(const HeldAnswer* answer) {
  const auto found = held_.find(answer);
  if (found == held_.end()) return nullptr;
  SetIdle(found->second, std::nullopt);
  std::shared_ptr<HeldAnswer> taken = std::move(found->second.answer);
  const uint32_t tenant = taken->name().tenant.value();
  TenantUse& use = tenants_[tenant];
  bytes_ -= found->second.bytes;
  use.bytes -= found->second.bytes;
  if (--use.answers == 0) tenants_.erase(tenant);
  const auto key = by_key_.find({tenant, taken->name().key});
  if (key != by_key_.end() && key->second == answer) by_key_.erase(key);
  by_id_.erase({tenant, taken->name().id});
  held_.erase(found);
  bytes_gauge_.Set(static_cast<double>(bytes_));
  answers_gauge_.Set(static_cast<double>(held_.size()));
  return taken;
}

std::vector<std::shared_ptr<HeldAnswer>> HeldAnswers::MakeRoom(const HeldAnswer& grown) {
  std::vector<std::shared_ptr<HeldAnswer>> taken;
  const uint32_t tenant = grown.name().tenant.value();
  const auto take = [&](const HeldAnswer* answer) {
    taken.push_back(Take(answer));
    dropped_.Increment();
  };
  while (true) {
    const auto use = tenants_.find(tenant);
    if (use == tenants_.end() || use->second.bytes <= options_.max_tenant_bytes) break;
    take(use->second.idle.empty() ? &grown : use->second.idle.begin()->second);
  }
  while (bytes_ > options_.max_bytes) {
    if (idle_.empty() && !held_.contains(&grown)) break;
    take(idle_.empty() ? &grown : idle_.begin()->second);
  }
  return taken;
}

void HeldAnswers::Update(const HeldAnswer& answer) {
  std::vector<std::shared_ptr<HeldAnswer>> taken;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = held_.find(&answer);
    if (found == held_.end()) return;
    Held& held = found->second;
    const std::optional<HeldAnswer::Use> use = answer.use();
    if (!use.has_value()) return;
    TenantUse& tenant = tenants_[answer.name().tenant.value()];
    bytes_ += use->bytes - held.bytes;
    tenant.bytes += use->bytes - held.bytes;
    held.bytes = use->bytes;
    if (use->idle != held.idle_since.has_value()) {
      SetIdle(held, use->idle ? std::optional(clock_.Now()) : std::nullopt);
    }
    bytes_gauge_.Set(static_cast<double>(bytes_));
    if (held.not_held && use->idle) {
      taken = {Take(&answer)};
    } else {
      taken = MakeRoom(answer);
    }
  }
  for (const auto& one : taken) one->Drop();
}

void HeldAnswers::Forget(const HeldAnswer& answer) {
  std::shared_ptr<HeldAnswer> taken;
  absl::MutexLock lock(&mutex_);
  taken = Take(&answer);
}

void HeldAnswers::LetGo() {
  std::vector<std::shared_ptr<HeldAnswer>> taken;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    while (!idle_.empty() && idle_.begin()->first + options_.hold <= now) {
      taken.push_back(Take(idle_.begin()->second));
    }
  }
  for (const auto& one : taken) one->Drop();
}

void HeldAnswers::Watch() {
  watch_ = std::thread([this] {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        mutex_.AwaitWithTimeout(absl::Condition(&stopping_), absl::Seconds(1));
        if (stopping_) return;
      }
      LetGo();
    }
  });
}

void HeldAnswers::Resumed(How how) {
  switch (how) {
    case How::kAttached:
      return attached_.Increment();
    case How::kContinued:
      return continued_.Increment();
    case How::kRecomputed:
      return recomputed_.Increment();
  }
}

}  // namespace baton::router
