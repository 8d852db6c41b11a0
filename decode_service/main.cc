// baton-decode: a decode worker.
#include <utility>

#include "decode_service/command.h"
#include "transfer/nccl/open_nccl.h"
#include "transfer/ucx/open_ucx.h"

int main(int argc, char** argv) {
  using namespace baton;
  decode_service::ServerOptions options;
  options.worker.link.open_nccl = transfer::OpenNccl;
  options.worker.link.open_ucx = transfer::OpenUcx;
  return decode_service::RunCommand(argc, argv, std::move(options));
}
