// baton-prefill: a prefill worker.
#include <utility>

#include "common/transfer/nccl/open_nccl.h"
#include "common/transfer/ucx/open_ucx.h"
#include "prefill_service/command.h"

int main(int argc, char** argv) {
  using namespace baton;
  prefill_service::ServerOptions options;
  options.worker.link.open_nccl = transfer::OpenNccl;
  options.worker.link.open_ucx = transfer::OpenUcx;
  return prefill_service::RunCommand(argc, argv, std::move(options));
}
