#include "router/api/call_name.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/random.h"
#include "protocol/client/limits.h"
#include "protocol/client/metadata.h"

namespace baton::router {

CallName NameInternalCall() { return {.id = fmt::format("{:016x}", RandomU64()), .client_id = ""}; }

CallName NameCall(const grpc::ServerContextBase& context) {
  CallName name = NameInternalCall();
  const auto found = context.client_metadata().find(protocol::kClientIdMetadata);
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (found != context.client_metadata().end() && std::ranges::all_of(found->second, printable)) {
    name.client_id.assign(found->second.data(), std::min(found->second.size(), protocol::kMaxClientIdBytes));
  }
  return name;
}

void Announce(const CallName& name, grpc::ServerContextBase* context) {
  context->AddInitialMetadata(protocol::kRequestIdMetadata, name.id);
  if (!name.client_id.empty()) context->AddInitialMetadata(protocol::kClientIdMetadata, name.client_id);
}

}  // namespace baton::router
