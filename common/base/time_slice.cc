#include "common/base/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace baton {
namespace {

// As linux/sched/types.h has it, which can't stand beside sched.h.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of SCHED_OTHER, from Linux 6.12 on: the slice, in nanoseconds
  uint64_t deadline = 0;
  uint64_t period = 0;
};

bool Get(SchedAttributes* attributes) {
  return syscall(SYS_sched_getattr, 0, attributes, sizeof(*attributes), 0) == 0 &&
         (attributes->policy == SCHED_OTHER || attributes->policy == SCHED_BATCH);
}

}  // namespace

void SetTimeSlice(absl::Duration slice) {
  SchedAttributes attributes;
  if (!Get(&attributes)) return;  // somebody has given it a policy of another kind
  attributes.runtime = static_cast<uint64_t>(absl::ToInt64Nanoseconds(slice));
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

absl::Duration TimeSlice() {
  SchedAttributes attributes;
  return Get(&attributes) ? absl::Nanoseconds(attributes.runtime) : absl::ZeroDuration();
}

}  // namespace baton
