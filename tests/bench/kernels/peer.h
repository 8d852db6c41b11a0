// The same product by another library, with its own packing of the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/tensor/dtype.h"

namespace baton::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  // out [rows, features] = x [rows, depth] * w^T, on the memory that it made itself.
  virtual void Run() = 0;
};

// "oneDNN 2.6.3", or "none".
std::string PeerName();

// Before the first product.
void SetPeerThreads(int threads);

// Null if there is no peer for these types. For bfloat16 weights the peer's activations are bfloat16 as well,
// which is less work than ours: float32 activations.
std::unique_ptr<Peer> MakePeer(int64_t rows, int64_t features, int64_t depth, tensor::DType weights);

}  // namespace baton::bench
