// Tools of the GPU tests: a backend on GPU 0, matrices in its memory, and how far a result may be off.
// Without a GPU every test fails and says so; skipped is only what a GPU's architecture does not have.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/cuda/prefill_choice.h"
#include "engine/kernels/kernels.h"

namespace baton::gpu {

// The backend under test: on GPU 0 (cuda_backend.cc), or its device code on the CPU (emulation/). Null, and a
// failure, if there is none.
std::unique_ptr<kernels::Kernels> MakeKernels(bool graphs = true);
// For the backends that MakeKernels makes. Whether wgmma is there: on GPUs of compute capability 9.0. Prefill
// by the given kernel from now on. The proof that is made at start, once more.
bool HasWgmma();
void UsePrefill(kernels::Kernels& kernels, kernels::cuda::PrefillKernel kernel);
absl::Status Prove(kernels::Kernels& kernels);
// Steps that were replays of a graph.
int64_t Replays(const kernels::Kernels& kernels);

// Where scripts/gpu has put the model, on a machine without the source.
inline std::string Model() {
  const char* packed = std::getenv("BATON_TEST_MODEL");
  return packed != nullptr ? packed : BATON_SOURCE_DIR "/models/baton-tiny";
}

inline std::vector<float> Normals(std::mt19937& random, int64_t count, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline float RoundTo(float value, tensor::DType dtype) {
  return dtype == tensor::DType::kBF16 ? tensor::FromBF16(tensor::ToBF16(value)) : value;
}
// To what bf16 can hold, so that both sides begin with the same numbers.
inline std::vector<float> Rounded(std::vector<float> values) {
  for (float& value : values) value = RoundTo(value, tensor::DType::kBF16);
  return values;
}

// A matrix on the GPU, of float32 or bf16, with a gap of canaries behind every row.
class DeviceMatrix {
 public:
  static constexpr int64_t kGap = 8;  // keeps rows at 16 bytes

  DeviceMatrix(device::Memory& memory, int64_t rows, int64_t cols, tensor::DType dtype)
      : memory_(memory), rows_(rows), cols_(cols), dtype_(dtype) {
    auto buffer = memory.Allocate(std::max<int64_t>(1, rows * stride() * tensor::SizeOf(dtype)));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
    Put(std::vector<float>(static_cast<size_t>(rows * cols), 0.0f));
  }
  DeviceMatrix(device::Memory& memory, const std::vector<float>& values, int64_t rows, int64_t cols,
               tensor::DType dtype)
      : DeviceMatrix(memory, rows, cols, dtype) {
    Put(values);
  }

  int64_t stride() const { return cols_ + kGap; }
  kernels::Matrix view() { return {buffer_.get(), rows_, cols_, stride(), dtype_}; }

  // The rows, side by side; fails if a canary is gone.
  std::vector<float> values() {
    const std::vector<float> all = Get();
    std::vector<float> values;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < stride(); ++c) {
        const float value = all[static_cast<size_t>(r * stride() + c)];
        if (c < cols_) {
          values.push_back(value);
        } else {
          EXPECT_EQ(value, kCanary) << "row " << r << " was written beyond its end";
        }
      }
    }
    return values;
  }

 private:
  static constexpr float kCanary = 12352;  // exact in bf16

  void Put(const std::vector<float>& values) {
    std::vector<float> all(static_cast<size_t>(rows_ * stride()), kCanary);
    for (int64_t r = 0; r < rows_; ++r) {
      std::copy_n(values.begin() + r * cols_, cols_, all.begin() + r * stride());
    }
    if (dtype_ == tensor::DType::kF32) {
      EXPECT_TRUE(memory_.Upload(all.data(), buffer_.get(), static_cast<int64_t>(all.size() * 4)).ok());
      return;
    }
    std::vector<uint16_t> halves;
    for (float value : all) halves.push_back(tensor::ToBF16(value));
    EXPECT_TRUE(memory_.Upload(halves.data(), buffer_.get(), static_cast<int64_t>(halves.size() * 2)).ok());
  }
  std::vector<float> Get() {
    std::vector<float> all(static_cast<size_t>(rows_ * stride()));
    if (dtype_ == tensor::DType::kF32) {
      EXPECT_TRUE(memory_.Download(buffer_.get(), all.data(), static_cast<int64_t>(all.size() * 4)).ok());
      return all;
    }
    std::vector<uint16_t> halves(all.size());
    EXPECT_TRUE(memory_.Download(buffer_.get(), halves.data(), static_cast<int64_t>(halves.size() * 2)).ok());
    for (size_t i = 0; i < all.size(); ++i) all[i] = tensor::FromBF16(halves[i]);
    return all;
  }

  device::Memory& memory_;
  int64_t rows_, cols_;
  tensor::DType dtype_;
  device::Memory::Buffer buffer_;
};

// |got - expected| <= absolute + relative |expected|, everywhere; NaN never passes.
inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, float absolute,
                       float relative, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  int64_t wrong = 0;
  float worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float difference = std::abs(got[i] - expected[i]);
    if (!(difference <= absolute + relative * std::abs(expected[i]))) {
      ++wrong;
      if (!(difference <= worst)) worst = difference, where = i;
    }
  }
  EXPECT_EQ(wrong, 0) << what << ": " << wrong << " of " << got.size() << " values are off, the worst at "
                      << where << ": " << got[where] << ", expected " << expected[where];
}

// bf16 has 8 bits of mantissa: a result rounded once is off by 2^-9 of itself; twice that leaves room for one
// more rounding on the way.
inline constexpr float kOneRounding = 1.0f / 256;

}  // namespace baton::gpu
