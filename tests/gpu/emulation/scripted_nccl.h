// A test's script of the NCCL that sums over ranks (scripted_nccl.cc). Any thread.
#pragma once

namespace emulation {

// Aborts do not come back until this is taken back.
void BlockAborts(bool block);
// Returns once one of them is blocked.
void AwaitABlockedAbort();

}  // namespace emulation
