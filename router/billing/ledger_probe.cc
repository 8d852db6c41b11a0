#include "router/billing/ledger_probe.h"

namespace baton::router::billing {

LedgerProbe::LedgerProbe(telemetry::Metrics& metrics)
    : written_(metrics.Counter("baton_router_ledger_requests_total",
                               "Requests whose usage was written to the ledger")),
      failing_(metrics.Gauge("baton_router_ledger_failing",
                             "1: the ledger or the audit log could not be written, and requests go on")),
      unwritten_(metrics.Gauge("baton_router_ledger_unwritten_requests",
                               "Requests whose usage waits in memory to be written to the ledger")),
      lines_lost_(metrics.Counter("baton_router_audit_lost_lines_total",
                                  "Audit lines that were lost because the audit log could not be written")) {}

}  // namespace baton::router::billing
