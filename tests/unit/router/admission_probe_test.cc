#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/admission/probe.h"

namespace baton::router::admission {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AdmissionProbeTest, TenantsWithoutALabelShareOne) {
  telemetry::Metrics metrics;
  Probe probe(metrics);
  probe.Name(TenantId(1), "search");
  probe.Name(TenantId(2), "other");
  probe.Name(TenantId(3), "other");
  probe.Admitted(TenantId(1));
  probe.Admitted(TenantId(2));
  probe.Admitted(TenantId(3));
  probe.Refused(TenantId(3), Reason::kPromptRate);
  probe.Depth(TenantId(2), {.entries = 2, .tokens = 20}, 1);
  probe.Depth(TenantId(3), {.entries = 3, .tokens = 30}, 1);
  probe.Depth(TenantId(2), {.entries = 1, .tokens = 10}, 0);
  probe.Left(TenantId(1), {.requests = 0.25});
  probe.Left(TenantId(2), {.requests = 0.25});
  const std::string page = metrics.Text();
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_admitted_total{tenant=\"search\"} 1"));
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_admitted_total{tenant=\"other\"} 2"));
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_queue_requests{tenant=\"other\"} 4"));
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_queue_tokens{tenant=\"other\"} 40"));
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_running{tenant=\"other\"} 1"));
  EXPECT_THAT(page,
              HasSubstr("baton_router_tenant_refused_total{reason=\"prompt_rate\",tenant=\"other\"} 1"));
  EXPECT_THAT(page, HasSubstr("baton_router_tenant_limit_left{limit=\"requests\",tenant=\"search\"} 0.25"));
  EXPECT_THAT(page, Not(HasSubstr("limit_left{limit=\"requests\",tenant=\"other\"")));
}

}  // namespace
}  // namespace baton::router::admission
