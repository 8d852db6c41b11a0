// PatientFolder: a folder behind a network, in front of one that works: no call takes longer than its
// patience. A call that does fails with DEADLINE_EXCEEDED, and until it comes back from the file system so do
// all others, at once; so whoever calls may be held up once, and never by a server that is gone. Each call
// runs on a thread of its own, which is left alone when it hangs and owns all that it touches: bytes are
// copied once more. Any thread.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/kv/tier/folder.h"

namespace baton::kv::tier {

// `open` makes the folder, within the patience too.
absl::StatusOr<std::unique_ptr<Folder>> OpenPatiently(
    std::function<absl::StatusOr<std::unique_ptr<Folder>>()> open, absl::Duration patience);

}  // namespace baton::kv::tier
