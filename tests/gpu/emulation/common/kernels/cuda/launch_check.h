// Stands before common/kernels/cuda/launch_check.h in the emulation, where nothing is launched.
#pragma once

#include <cstddef>

namespace baton::kernels::cuda {

inline void CheckLaunch(const char*) {}
template <typename Kernel>
void AllowShared(Kernel*, size_t) {}

}  // namespace baton::kernels::cuda
