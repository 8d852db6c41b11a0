// WorkerSlot: a worker's dense number in this router, for as long as it is known here. Small, so that
// per-worker tables are arrays; reused after the worker has left, so a table that is kept by slot must
// forget it then.
#pragma once

#include <cstdint>

#include "common/base/named_type.h"

namespace baton::router {

using WorkerSlot = NamedType<uint32_t, struct WorkerSlotTag>;

}  // namespace baton::router
