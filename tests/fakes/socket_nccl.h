// SocketNccl: a NCCL between processes of one machine, over local sockets and host memory, so that real
// workers run over `--link nccl` where there is no GPU. Two signals make it fail, whoever sends them:
//   SIGUSR1   transfers stop, and continue at the next SIGUSR1
//   SIGUSR2   every communicator that is open has an asynchronous error
// A peer that dies is noticed by the end of its socket, but only while a transfer is in progress: nobody
// hears of the death of an idle peer. Like NCCL's, a communicator is used under its link's lock.
#pragma once

#include "transfer/nccl/open_nccl.h"

namespace baton::transfer {

inline constexpr int kSocketNcclVersion = 10000;

// Ids, joins and aborts on any thread; what is asked of one communicator, by one thread at a time.
NcclApi MakeSocketNccl();

}  // namespace baton::transfer
