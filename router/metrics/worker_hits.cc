#include "router/metrics/worker_hits.h"

#include <set>

namespace baton::router {
namespace {

prometheus::Family<prometheus::Counter>& Tokens(telemetry::Metrics& metrics, const char* name,
                                                const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*metrics.registry());
}

}  // namespace

WorkerHits::WorkerHits(telemetry::Metrics& metrics)
    : labels_(metrics.labels()),
      prompt_(Tokens(metrics, "baton_router_worker_prompt_tokens_total",
                     "Prompt tokens of placements on a worker")),
      predicted_(
          Tokens(metrics, "baton_router_worker_predicted_tokens_total",
                 "Of those, expected to be cached there; on prefill workers beyond the decode worker's")),
      found_(Tokens(metrics, "baton_router_worker_cached_tokens_total",
                    "Of those, cached there; on prefill workers beyond the decode worker's")) {}

const WorkerHits::Counters* WorkerHits::Of(const Name& worker) {
  if (too_many_) return nullptr;
  const auto found = workers_.find(worker);
  if (found != workers_.end()) return &found->second;
  prometheus::Labels labels = labels_;
  labels["worker"] = worker.first;
  labels["pool"] = worker.second;
  const Counters made{&prompt_.Add(labels), &predicted_.Add(labels), &found_.Add(labels)};
  return &workers_.emplace(worker, made).first->second;
}

void WorkerHits::Placed(const Name& worker, int64_t prompt, int64_t predicted) {
  absl::MutexLock lock(&mutex_);
  const Counters* counters = Of(worker);
  if (counters == nullptr) return;
  counters->prompt->Increment(static_cast<double>(prompt));
  counters->predicted->Increment(static_cast<double>(predicted));
}

void WorkerHits::Found(const Name& worker, int64_t cached) {
  absl::MutexLock lock(&mutex_);
  const Counters* counters = Of(worker);
  if (counters != nullptr) counters->found->Increment(static_cast<double>(cached));
}

void WorkerHits::Keep(const std::vector<Name>& workers) {
  absl::MutexLock lock(&mutex_);
  too_many_ = workers.size() > kMaxWorkers;
  const std::set<Name> kept = too_many_ ? std::set<Name>() : std::set<Name>(workers.begin(), workers.end());
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (kept.contains(it->first)) {
      ++it;
      continue;
    }
    prompt_.Remove(it->second.prompt);
    predicted_.Remove(it->second.predicted);
    found_.Remove(it->second.found);
    it = workers_.erase(it);
  }
}

}  // namespace baton::router
