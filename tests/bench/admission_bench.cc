// Costs of admission per request, with few and many tenants and with short and long lines: let in, served,
// settled. And the cost of finding the tenant of a key.
#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "router/admission/admission_controller.h"
#include "router/tenancy/api_key.h"

namespace baton::router::admission {
namespace {

// The line stays as long as it is: each round admits one request and serves one.
void BM_AdmitServeSettle(benchmark::State& state) {
  const auto tenants = static_cast<uint32_t>(state.range(0));
  const int64_t waiting = state.range(1);
  AdmissionController controller(
      {.entries = waiting + 10, .tokens = int64_t{1} << 50, .bytes = int64_t{1} << 50});
  absl::Time now = absl::UnixEpoch();
  for (uint32_t t = 0; t < tenants; ++t) {
    controller.SetTenant(TenantId(t), {.weight = 1.0 + t % 7, .requests_per_minute = int64_t{1} << 40}, now);
  }
  uint64_t draws = 0;
  const auto admit = [&] {
    ++draws;
    const Request request = {.tenant = TenantId(static_cast<uint32_t>(draws % tenants)),
                             .prompt_tokens = static_cast<int64_t>(draws * 7919 % 100'000),
                             .max_tokens = 256,
                             .bytes = 1000,
                             .priority = static_cast<int>(draws % 21) - 10,
                             .deadline = now + absl::Hours(10)};
    auto decided = controller.Admit(request, {.due = request.deadline}, absl::InfiniteDuration(), now);
    BATON_CHECK(std::holds_alternative<AdmissionController::Admitted>(decided));
  };
  for (int64_t i = 0; i < waiting; ++i) admit();
  for (auto _ : state) {
    now += absl::Microseconds(10);
    admit();
    const EntryId first = *controller.First();
    controller.Serve(first, now);
    controller.Settle(first, {.requests = 1, .prompt_tokens = 1000, .output_tokens = 100}, now);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AdmitServeSettle)
    ->ArgNames({"tenants", "waiting"})
    ->Args({1, 1})
    ->Args({10, 1000})
    ->Args({1000, 1000})
    ->Args({1000, 100'000});

void BM_CheckApiKey(benchmark::State& state) {
  const NewApiKey made = MakeApiKey();
  const auto stored = ParseDigest(made.sha256);
  for (auto _ : state) {
    benchmark::DoNotOptimize(ApiKeyId(made.key));
    benchmark::DoNotOptimize(SameDigest(ApiKeyDigest(made.key), *stored));
  }
}
BENCHMARK(BM_CheckApiKey);

}  // namespace
}  // namespace baton::router::admission
