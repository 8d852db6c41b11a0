// The files that the process may have open. Any thread.
#pragma once

#include <cstddef>

namespace baton {

// Raises the soft limit of open files to the hard one, and returns it: a shell's soft limit is less than a
// server's connections. Again changes nothing.
size_t RaiseDescriptorLimit();

}  // namespace baton
