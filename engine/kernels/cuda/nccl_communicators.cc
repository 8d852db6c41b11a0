#include "engine/kernels/cuda/nccl_communicators.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"

namespace baton::kernels::cuda {

void NcclCommunicators::Abort() {
  const std::vector<ncclComm_t> ending = std::exchange(communicators_, {});
  if (ending.empty()) return;
  absl::Notification ended;
  std::thread aborts([&] {
    (void)ncclGroupStart();
    for (ncclComm_t communicator : ending) (void)ncclCommAbort(communicator);
    (void)ncclGroupEnd();
    ended.Notify();
  });
  if (!ended.WaitForNotificationWithTimeout(options_.abort_deadline)) {
    const std::string why = fmt::format("aborting the communicators of {} ranks has not come back in {}",
                                        ending.size(), absl::FormatDuration(options_.abort_deadline));
    if (options_.give_up == nullptr) {
      fmt::print(stderr, "NCCL: {}: the process ends without waiting for it\n", why);
      std::_Exit(EXIT_FAILURE);
    }
    options_.give_up(why);
  }
  aborts.join();
}

}  // namespace baton::kernels::cuda
