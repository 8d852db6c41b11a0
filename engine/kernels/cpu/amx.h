// Amx: says if this process multiplies by the tiles of AMX. A processor may have them and a process still
// not: Linux hands out their 8 KiB of state on request, which some containers refuse, and some virtual
// machines are slow with them or lose them when a thread is preempted. So a process asks once and tries them
// once; all that they compute is defined without them, so that the choice never shows in a result. Any
// thread.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"

namespace baton::kernels::cpu {

struct AmxState {
  bool usable = false;  // right results
  bool faster = false;  // than AVX-512 VNNI, too
  // Says why a processor that has tiles is not to use them; empty if it has none, or is.
  std::string warning;
};

// Asks and tries in the first call, which takes some 30 ms where there is AMX.
const AmxState& Amx();

// The steps of that, for tests.
struct AmxTrial {
  absl::FunctionRef<bool()> there;   // the processor has it, and the kernel knows it
  absl::FunctionRef<int()> request;  // 0, or the errno of the kernel's refusal
  absl::FunctionRef<bool()> right;   // products of bytes are
  absl::FunctionRef<bool()> keeps;   // tiles are kept while threads take turns on a core
  absl::FunctionRef<bool()> faster;
};
AmxState TryAmx(const AmxTrial& trial);

}  // namespace baton::kernels::cpu
