// wgmma on a CPU: products that a warpgroup issues, that read shared memory and registers at some time before
// they are waited for, and write their sums then. The time is chosen so that mistakes show:
//  - an accumulator is NaN from the first product on it until its last is waited for; what the kernel stores
//  there
//    meanwhile is lost;
//  - operands in registers are read when the product is waited for;
//  - operands in shared memory are read when it is issued and again then, and must not have changed: neither
//  had a
//    barrier been missing before nor was a stage written too early;
//  - what was written to shared memory by copies or stores and has not passed a proxy fence of its writer is
//  not
//    seen by the asynchronous proxy: reading it ends the process, as do products without WgmmaFence, and
//    lanes of a warpgroup that issue different ones.
// Descriptors are decoded as PTX ISA has them: "Shared Memory Matrix Layout", "Strides", "Matrix descriptor".
#pragma once

#include <cstdint>

namespace emulation {

// Of one lane. d has n / 2 registers, and a, if A is in registers, 4.
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
