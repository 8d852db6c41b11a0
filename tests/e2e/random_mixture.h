// A small mixture of experts of random weights, with the shipped model's tokenizer: a folder that the
// binaries serve. Its answers mean nothing, and its routers spread rows over all experts.
#pragma once

#include <cstdint>
#include <string>

namespace baton::e2e {

struct MixtureShape {
  int layers = 3, experts = 16, chosen = 4;
  int64_t hidden = 64, width = 64;
  // Bytes of one expert's three matrices, as the cpu backend keeps float32.
  int64_t expert_bytes() const { return 3 * hidden * width * 4; }
  int all() const { return layers * experts; }
};

// Writes it to `folder`, which is made.
void WriteRandomMixture(const std::string& folder, const MixtureShape& shape, uint64_t seed);

}  // namespace baton::e2e
