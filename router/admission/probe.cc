#include "router/admission/probe.h"

namespace baton::router::admission {
namespace {

constexpr char kOther[] = "other";

std::array<prometheus::Counter*, kReasons> Refusals(telemetry::Metrics& metrics, const std::string& tenant) {
  std::array<prometheus::Counter*, kReasons> counters;
  for (int i = 0; i < kReasons; ++i) {
    counters[i] = &metrics.Counter(
        "baton_router_tenant_refused_total", "Requests that admission refused, by tenant and reason",
        {{"tenant", tenant}, {"reason", std::string(ReasonName(static_cast<Reason>(i)))}});
  }
  return counters;
}

}  // namespace

Probe::Series::Series(telemetry::Metrics& metrics, const std::string& label)
    : admitted(metrics.Counter("baton_router_tenant_admitted_total", "Requests that were admitted",
                               {{"tenant", label}})),
      refused(Refusals(metrics, label)),
      wait(metrics.Histogram("baton_router_tenant_wait_seconds",
                             "Admission to placement, by choice; zero if a worker took it at once",
                             telemetry::TtftBuckets(), {{"tenant", label}})),
      prompt_tokens(metrics.Counter("baton_router_tenant_prompt_tokens_total",
                                    "Prompt tokens of requests that began", {{"tenant", label}})),
      output_tokens(metrics.Counter("baton_router_tenant_output_tokens_total", "Tokens of answers",
                                    {{"tenant", label}})),
      queued_requests(metrics.Gauge("baton_router_tenant_queue_requests",
                                    "Choices waiting for a decode worker, by tenant", {{"tenant", label}})),
      queued_tokens(metrics.Gauge("baton_router_tenant_queue_tokens",
                                  "Prompt and expected answer tokens of what waits, by tenant",
                                  {{"tenant", label}})),
      running(metrics.Gauge("baton_router_tenant_running", "Choices on workers, by tenant",
                            {{"tenant", label}})) {}

void Probe::Name(TenantId tenant, const std::string& label) {
  Tenant& named = tenants_[tenant];
  if (named.series != nullptr) return;
  auto found = series_.find(label);
  if (found == series_.end()) found = series_.try_emplace(label, metrics_, label).first;
  named.series = &found->second;
  named.label = label;
  named.own = label != kOther;
}

void Probe::Admitted(TenantId tenant) { tenants_.at(tenant).series->admitted.Increment(); }

void Probe::Refused(TenantId tenant, Reason reason) {
  tenants_.at(tenant).series->refused[static_cast<int>(reason)]->Increment();
}

void Probe::Waited(TenantId tenant, absl::Duration wait) {
  tenants_.at(tenant).series->wait.Observe(absl::ToDoubleSeconds(wait));
}

void Probe::Used(TenantId tenant, const Meter::Use& use) {
  Series& series = *tenants_.at(tenant).series;
  series.prompt_tokens.Increment(static_cast<double>(use.prompt_tokens));
  series.output_tokens.Increment(static_cast<double>(use.output_tokens));
}

void Probe::Depth(TenantId tenant, const Queue::Depth& depth, int64_t running) {
  Tenant& known = tenants_.at(tenant);
  known.series->queued_requests.Increment(static_cast<double>(depth.entries - known.depth.entries));
  known.series->queued_tokens.Increment(static_cast<double>(depth.tokens - known.depth.tokens));
  known.series->running.Increment(static_cast<double>(running - known.running));
  known.depth = depth;
  known.running = running;
}

void Probe::Left(TenantId tenant, const Meter::Left& left) {
  Tenant& known = tenants_.at(tenant);
  if (!known.own) return;
  const std::array<std::pair<const char*, double>, 4> shares = {{{"requests", left.requests},
                                                                 {"prompt_tokens", left.prompt_tokens},
                                                                 {"output_tokens", left.output_tokens},
                                                                 {"quota", left.quota}}};
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto& [limit, share] = shares[i];
    if (known.left[i] == nullptr) {
      known.left[i] = &metrics_.Gauge("baton_router_tenant_limit_left",
                                      "Share of a tenant's limit that is left, 1 without a limit",
                                      {{"tenant", known.label}, {"limit", limit}});
    }
    known.left[i]->Set(share);
  }
}

}  // namespace baton::router::admission
