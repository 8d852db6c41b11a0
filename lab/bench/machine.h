// The machine that a number was measured on. Read from /proc; what can't be read is empty.
#pragma once

#include <cstdint>
#include <string>

namespace baton::lab::bench {

struct Machine {
  std::string cpu;
  int cores = 0;
  int64_t memory_bytes = 0;
  std::string kernel;
};

Machine ThisMachine();

}  // namespace baton::lab::bench
