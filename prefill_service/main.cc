// baton-prefill: a prefill worker.
#include <utility>

#include "prefill_service/command.h"
#include "transfer/nccl/open_nccl.h"
#include "transfer/ucx/open_ucx.h"

int main(int argc, char** argv) {
  using namespace baton;
  prefill_service::ServerOptions options;
  options.worker.link.open_nccl = transfer::OpenNccl;
  options.worker.link.open_ucx = transfer::OpenUcx;
  return prefill_service::RunCommand(argc, argv, std::move(options));
}
