// wgmma on a CPU: products that a warpgroup issues, that read shared memory and registers at some time before
// they are waited for, and write their sums then. The time is chosen so that mistakes show:
//  - an accumulator is NaN from its first product until its last one is waited for; what the kernel stores
//    there in between is lost;
//  - operands in registers are read when the product is waited for;
//  - operands in shared memory are read when the product is issued and again when it is waited for, and must
//    not differ: else a barrier was missing, or a stage was written too early;
//  - what copies or stores wrote to shared memory is invisible to the asynchronous proxy until its writer has
//    passed a proxy fence. Reading it before ends the process; so do products without WgmmaFence, and lanes
//    of a warpgroup that issue different products.
// Descriptors are decoded as PTX ISA has them: "Shared Memory Matrix Layout", "Strides", "Matrix descriptor".
#pragma once

#include <cstdint>

namespace emulation {

// One lane's part of a product. d has n / 2 registers, and a, if A is in registers, 4.
struct Product {
  int n = 0;
  float* d = nullptr;
  const uint32_t* a = nullptr;
  uint64_t a_descriptor = 0, b_descriptor = 0;
  bool a_k_major = true, b_k_major = false;
  bool accumulate = true;
  float (*value)(uint16_t bits) = nullptr;
};

// Called by all lanes of a warpgroup.
void IssueProduct(const Product& product);
void FenceProducts();
void CommitProducts();
// Called by all lanes of a warp: the other warps' rows are done when they wait for them.
void WaitForProducts(int left);

// 16 bytes of shared memory were written by this thread.
void WroteShared(const void* where);
void FenceProxy();

}  // namespace emulation
