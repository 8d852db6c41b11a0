// Tools of the kernel tests: random inputs from a printed seed, and a way to run sequences through
// RotateAndStore and Attention under any schedule.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/kernels/kernels.h"

namespace baton::kernels {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Uniform in [low, high].
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  std::vector<float> Normals(int64_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(engine_);
    return values;
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), engine_);
  }

 private:
  std::mt19937_64 engine_;
};

// A matrix with memory of its own and, to catch kernels that write where they shouldn't, `gap` values between
// rows.
class OwnedMatrix {
 public:
  static constexpr float kCanary = 12345.0f;

  OwnedMatrix(int64_t rows, int64_t cols, int64_t gap = 0)
      : rows_(rows), cols_(cols), stride_(cols + gap), data_(static_cast<size_t>(rows * stride_), kCanary) {}
  static OwnedMatrix From(const std::vector<float>& values, int64_t rows, int64_t cols, int64_t gap = 0) {
    OwnedMatrix matrix(rows, cols, gap);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * cols, cols, matrix.view().row(r));
    return matrix;
  }

  Matrix view() { return {data_.data(), rows_, cols_, stride_}; }
  std::vector<float> row(int64_t r) { return {view().row(r), view().row(r) + cols_}; }
  // The rows, side by side.
  std::vector<float> values() {
    std::vector<float> all;
    for (int64_t r = 0; r < rows_; ++r) all.insert(all.end(), view().row(r), view().row(r) + cols_);
    return all;
  }
  bool GapsIntact() {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < stride_; ++c) {
        if (view().row(r)[c] != kCanary) return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_, cols_, stride_;
  std::vector<float> data_;
};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Null, with the reason in `why`, if this machine lacks the instruction set.
inline std::unique_ptr<Kernels> TryMakeCpu(const std::string& isa, int threads, std::string* why = nullptr) {
  auto made = MakeCpuKernels({.threads = threads, .isa = isa});
  if (made.ok()) return *std::move(made);
  if (why != nullptr) *why = std::string(made.status().message());
  return nullptr;
}

// A sink for each of so many heads: below all scores, among them, above them.
inline std::span<const float> TrialSinks(int heads) {
  static const std::vector<float> all = {0.5f, -30, 3, 12, -1, 0, 60, -2.5f, 5, 1.25f};
  return std::span(all).first(static_cast<size_t>(heads));
}

// The attention part of one layer of a model.
struct LayerShape {
  AttentionShape attention;
  tensor::DType key_dtype = tensor::DType::kF32;
  tensor::DType value_dtype = tensor::DType::kF32;
  bool qk_norm = false;

  int64_t cols() const { return int64_t{attention.heads + 2 * attention.kv_heads} * attention.head_dim; }
};

// Sequences of random activations, to be served in any order and chunking.
struct Workload {
  static constexpr int64_t kContext = 512;
  LayerShape shape;
  std::vector<std::vector<float>> qkv;  // per sequence, [tokens][cols]
  std::vector<float> cos, sin, q_norm, k_norm;

  Workload(const LayerShape& layer, const std::vector<int64_t>& lengths, Random& random) : shape(layer) {
    for (int64_t tokens : lengths) qkv.push_back(random.Normals(tokens * shape.cols()));
    const int half = shape.attention.head_dim / 2;
    for (int64_t p = 0; p < kContext; ++p) {
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / half);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    if (shape.qk_norm) {
      q_norm = random.Normals(shape.attention.head_dim);
      k_norm = random.Normals(shape.attention.head_dim);
    }
  }
  int64_t tokens(size_t s) const { return static_cast<int64_t>(qkv[s].size()) / shape.cols(); }
};

// How to serve a workload: which sequences, in what chunks; blocks are scattered by `random`.
struct Schedule {
  std::vector<size_t> sequences;
  int64_t longest_chunk = Workload::kContext;
  bool interleave = false;  // random subsets of the sequences, random chunks, in random order
};

// The results for one sequence: rotated Q and attention, [tokens][heads * head_dim] each, and its blocks'
// bytes.
struct Served {
  std::vector<float> q, out;
  std::vector<std::byte> kv;
};

// Runs the sequences to their ends. The pool begins as NaNs, so that a read of what was never written shows.
std::vector<Served> Serve(Kernels& kernels, const Workload& work, const Schedule& schedule, Random& random);

}  // namespace baton::kernels
