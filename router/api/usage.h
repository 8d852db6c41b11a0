// Counts of tokens between the wire and billing, and what a call's end carries of them. Pure functions, any
// thread.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "router/billing/price.h"
#include "router/billing/token_counts.h"
#include "router/billing/usage_account.h"

namespace baton::router {

// The prompt's part of a decode worker's usage.
billing::UsageAccount::PromptReport PromptReportOf(const v1::Usage& usage);

// Writes the counts over those of `usage`.
void SetUsage(const billing::TokenCounts& counts, v1::Usage* usage);

// The cost of the counts.
v1::Cost CostMessage(const billing::Price& price, const billing::TokenCounts& counts);
// The price as clients see it.
v1::Prices PricesOf(const billing::Price& price);

// Puts the usage into the call's trailing metadata. Before the call is finished.
void AddUsage(const v1::RequestUsage& usage, grpc::ServerContextBase* context);

// The status with which gRPC ends a call, explained (explained.h), before that is finished. A retry delay is
// told a second time, in the trailing metadata that gRPC's own retries obey (proposal A6): RESOURCE_EXHAUSTED
// without one tells them that the same call never passes.
// The request's id (RequestInfo) is told there, too: a call that is refused at once has no other metadata.
grpc::Status EndOf(const absl::Status& status, grpc::ServerContextBase* context);

}  // namespace baton::router
