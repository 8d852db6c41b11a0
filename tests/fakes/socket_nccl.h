// SocketNccl: a NCCL between processes of one machine, over local sockets and host memory, so that real
// workers run over `--link nccl` where there is no GPU. Two signals make it fail, whoever sends them:
//   SIGUSR1   transfers stop, and continue at the next SIGUSR1
//   SIGUSR2   every communicator that is open has an asynchronous error
// A peer that dies is noticed by the end of its socket, as NCCL notices it over a network. Like NCCL's, a
// communicator is used under its link's lock.
#pragma once

#include "common/transfer/nccl/open_nccl.h"

namespace baton::transfer {

// Everything on one link's thread and engine thread, one at a time.
NcclApi MakeSocketNccl();

}  // namespace baton::transfer
