// EventSink: the way back to the caller of a server-streaming call, for whoever does the work. It knows no
// gRPC: the services fill it in (served_calls.h), and tests with functions of their own. Its functions are
// called on the thread that does the work; send and finish on others too, one after the other
// (transfer::LinkSender::WhenReady).
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace baton::rpc {

template <typename Event>
struct EventSink {
  std::function<void(Event)> send;
  // Once, at the end, unless the caller cancelled.
  std::function<void(absl::Status)> finish;
  // The caller has not taken enough of what was sent: compute and send nothing more for it now.
  std::function<bool()> congested;
};

}  // namespace baton::rpc
