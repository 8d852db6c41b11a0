// moe_bench --offload: the experts of several layers in a file, a share of them in memory, beside all of them
// in memory, on one trace of routings.
#pragma once

#include <cstdint>
#include <string>

namespace baton::bench {

struct OffloadOptions {
  int64_t hidden = 2048, width = 768;
  int experts = 128, chosen = 8, layers = 4;
  int bits = 4;
  double resident = 0.4;
  // The expert of rank k, another one in each layer, is drawn with weight 1 / k^zipf.
  double zipf = 1;
  // Where the file is made, and removed at the end; its disk is what is measured.
  std::string folder = ".";
  int threads = 1, repetitions = 7;
};

// Prints a table; false if the file can't be made or read, which it says.
bool RunOffload(const OffloadOptions& options);

}  // namespace baton::bench
