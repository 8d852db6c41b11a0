// CallName: what a call of a client is called, from its first moment on: by an id of ours, which is in the
// metadata of its answer (`baton-request-id`), in its errors (RequestInfo), logs, traces and the audit log;
// and by the client's own name for it (`x-request-id`). Pure but for the draw; any thread.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

namespace baton::router {

struct CallName {
  std::string id;
  std::string client_id;  // empty: the client gives none
};

// Names a call. The client\'s name is cut to its first protocol::kMaxClientIdBytes bytes, and counts as none
// if it is not printable ASCII, with which gRPC would end the process.
CallName NameCall(const grpc::ServerContextBase& context);
// The same for a call of the router's own.
CallName NameInternalCall();

// Puts the names into the metadata that an answer begins with, before those are sent. Not of a call that is
// refused: gRPC's own retries send it again only if it ends without such metadata (proposal A6).
void Announce(const CallName& name, grpc::ServerContextBase* context);

}  // namespace baton::router
