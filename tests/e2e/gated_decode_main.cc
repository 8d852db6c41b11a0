// A decode worker for tests: it may stand at a gate, and behind `--link nccl` is a NCCL that goes over
// sockets (tests/fakes/socket_nccl.h).
#include <utility>

#include "decode_service/command.h"
#include "tests/e2e/gated_worker.h"
#include "transfer/nccl/open_nccl.h"
#include "transfer/ucx/open_ucx.h"

int main(int argc, char** argv) {
  using namespace baton;
  const auto gate = e2e::TakeGate(argc, argv);
  decode_service::ServerOptions options;
  options.worker.step_gate = gate.get();
  options.worker.link.open_nccl = transfer::OpenNccl;
  options.worker.link.open_ucx = transfer::OpenUcx;
  return decode_service::RunCommand(argc, argv, std::move(options));
}
