#include "common/rpc/trace_metadata.h"

#include <string_view>
#include <vector>

namespace baton::rpc {
namespace {

std::vector<std::string_view> AllValues(const grpc::ServerContextBase& context, const char* name) {
  std::vector<std::string_view> values;
  const auto [first, last] = context.client_metadata().equal_range(name);
  for (auto found = first; found != last; ++found) {
    values.emplace_back(found->second.data(), found->second.size());
  }
  return values;
}

}  // namespace

telemetry::TraceContext TraceOf(const grpc::ServerContextBase& context) {
  return telemetry::ParseTraceContext(AllValues(context, telemetry::kTraceparent),
                                      AllValues(context, telemetry::kTracestate))
      .value_or(telemetry::TraceContext());
}

void AddTrace(const telemetry::TraceContext& trace, grpc::ClientContext* context) {
  if (!trace.valid()) return;
  context->AddMetadata(telemetry::kTraceparent, trace.Traceparent());
  if (!trace.state.empty()) context->AddMetadata(telemetry::kTracestate, trace.state);
}

}  // namespace baton::rpc
