// Explained: what an error of a router tells programs beside its code: the reason, and the field that is
// wrong. Errors that mean something of their own have a reason from where they arise (rpc::WithReason); the
// others get that of their code here, at the one place where calls end. Pure function, any thread.
#pragma once

#include "absl/status/status.h"

namespace baton::router {

// `status` with an ErrorInfo, and with a BadRequest if its message begins with the path of a field, as the
// messages of this project do: "sampling.top_p: 2 is outside (0, 1]".
absl::Status Explained(absl::Status status);

}  // namespace baton::router
