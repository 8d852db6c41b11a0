#include "engine/kernels/cuda/prefill_proof.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/status.h"
#include "engine/kernels/cuda/prefill_choice.h"
#include "engine/kernels/cuda/views.h"
#include "engine/kv/store/kv_codec.h"

namespace baton::kernels::cuda {
namespace {

constexpr uint32_t kSeed = 90;
constexpr int kHeads = 6, kKvHeads = 2;

struct Trial {
  DType activations, keys, values;
  int head_dim;
  int64_t window;
};

std::string Describe(const Trial& t) {
  return fmt::format("heads of {}, {}, keys {}, values {}, window {}", t.head_dim,
                     tensor::Name(t.activations), tensor::Name(t.keys), tensor::Name(t.values), t.window);
}

std::vector<Trial> Trials() {
  std::vector<Trial> trials;
  for (const int head_dim : {64, 128}) {
    for (const DType own : {DType::kBF16, DType::kF16}) {
      trials.push_back({own, own, own, head_dim, 0});
      trials.push_back({own, own, own, head_dim, 50});
      trials.push_back({own, DType::kI8, DType::kF8, head_dim, 0});
      trials.push_back({own, DType::kF8, DType::kI8, head_dim, 50});
      trials.push_back({own, DType::kF32, DType::kF32, head_dim, 0});
    }
  }
  return trials;
}

// A random number of the order of 1, as bits of `dtype`: either sign, magnitudes of 1/8 to 2. An int8 is what
// its scale makes of it.
void PutRandom(std::byte* to, DType dtype, std::mt19937& random) {
  const uint32_t bits = random();
  const uint32_t sign = bits & 1, magnitude = bits >> 1 & 3;
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (dtype) {
    case DType::kF32:
      return put(sign << 31 | (124 + magnitude) << 23 | bits >> 9);
    case DType::kBF16:
      return put(static_cast<uint16_t>(sign << 15 | (124 + magnitude) << 7 | bits >> 25));
    case DType::kF16:
      return put(static_cast<uint16_t>(sign << 15 | (12 + magnitude) << 10 | bits >> 22));
    case DType::kF8:
      return put(static_cast<uint8_t>(sign << 7 | (4 + magnitude) << 3 | bits >> 29));
    case DType::kI8:
      return put(static_cast<int8_t>(static_cast<int>(bits % 255) - 127));
    case DType::kI4:  // refused by CudaKernels::CheckLayout
      break;
  }
}

float ScaleOf(DType dtype, std::mt19937& random) {
  const float jitter = 0.5f + static_cast<float>(random() % 1024) / 1024;
  return dtype == DType::kI8 ? jitter * 2 / 127 : jitter;
}

// One head's keys or values of a token. Keys lie token by token, values side by side.
void PutToken(std::byte* head, const kv::KvLayout& layout, DType dtype, bool keys, int64_t token,
              std::mt19937& random) {
  for (int d = 0; d < layout.head_dim; ++d) {
    const int64_t at = keys ? d * kBlockTokens + token : token * layout.head_dim + d;
    PutRandom(head + at * tensor::SizeOf(dtype), dtype, random);
  }
  if (!tensor::IsScaled(dtype)) return;
  const float scale = ScaleOf(dtype, random);
  std::memcpy(head + kv::ScalesAt(dtype, layout.head_dim) + token * 4, &scale, sizeof scale);
}

std::vector<float> ToFloats(const std::vector<uint16_t>& bits, DType dtype) {
  std::vector<float> values;
  for (const uint16_t b : bits)
    values.push_back(dtype == DType::kBF16 ? tensor::FromBF16(b) : tensor::FromF16(b));
  return values;
}

absl::Status Run(const Trial& trial, device::Memory& memory, cudaStream_t stream,
                 decltype(&WgmmaPrefillAttention) kernel, std::mt19937& random) {
  const kv::KvLayout layout{.layers = 1,
                            .kv_heads = kKvHeads,
                            .head_dim = trial.head_dim,
                            .key_dtype = trial.keys,
                            .value_dtype = trial.values};
  // More rows than a tile has; a chunk behind a prefix, up to the first key of a tile; rows whose window has
  // a tile of keys to its left; many tiles of keys. Blocks in no order.
  const std::pair<int64_t, int64_t> lanes[] = {{0, 75}, {110, 19}, {130, 9}, {500, 30}};
  std::vector<BlockId> blocks;
  int64_t rows = 0;
  for (const auto& [past, count] : lanes) {
    for (int64_t b = 0; b < BlocksFor(past + count); ++b)
      blocks.emplace_back(static_cast<uint32_t>(blocks.size()));
    rows += count;
  }
  std::shuffle(blocks.begin(), blocks.end(), random);
  BATON_ASSIGN_OR_RETURN(kv::KvStore store,
                         kv::KvStore::Create(layout, static_cast<int64_t>(blocks.size()), memory));
  // Bytes that no token has written are NaN in most dtypes, and must not matter.
  std::vector<std::byte> pool(blocks.size() * static_cast<size_t>(layout.block_bytes()), std::byte{0xFF});
  std::vector<SequenceRows> sequences;
  std::span<const BlockId> left = blocks;
  for (int64_t row = 0; const auto& [past, count] : lanes) {
    const std::span<const BlockId> own = left.first(static_cast<size_t>(BlocksFor(past + count)));
    left = left.subspan(own.size());
    sequences.push_back({row, count, past, own});
    row += count;
    for (int64_t token = 0; token < past + count; ++token) {
      const int64_t block = own[static_cast<size_t>(token / kBlockTokens)].value();
      std::byte* const at = pool.data() + block * layout.block_bytes();
      for (int head = 0; head < kKvHeads; ++head) {
        PutToken(at + layout.layer(0).key_offset(head), layout, trial.keys, true, token % kBlockTokens,
                 random);
        PutToken(at + layout.layer(0).value_offset(head), layout, trial.values, false, token % kBlockTokens,
                 random);
      }
    }
  }
  BATON_RETURN_IF_ERROR(memory.Upload(pool.data(), store.block(BlockId(0)), std::ssize(pool)));

  const int64_t cols = int64_t{kHeads} * trial.head_dim;
  std::vector<uint16_t> q(static_cast<size_t>(rows * cols));
  for (uint16_t& value : q) PutRandom(reinterpret_cast<std::byte*>(&value), trial.activations, random);
  const int64_t bytes = rows * cols * 2;
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer device_q, memory.Allocate(bytes));
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer device_out, memory.Allocate(bytes));
  BATON_RETURN_IF_ERROR(memory.Upload(q.data(), device_q.get(), bytes));

  const StepTable table({}, sequences, {}, rows, kHeads / kKvHeads);
  const auto words = static_cast<int64_t>(table.words().size_bytes());
  BATON_ASSIGN_OR_RETURN(device::Memory::Buffer device_table, memory.Allocate(words));
  BATON_RETURN_IF_ERROR(memory.Upload(table.words().data(), device_table.get(), words));
  const StepView step = ViewOf(table, reinterpret_cast<const int32_t*>(device_table.get()));
  const HeadShape shape{.heads = kHeads,
                        .kv_heads = kKvHeads,
                        .head_dim = trial.head_dim,
                        .scale = 1 / std::sqrt(static_cast<float>(trial.head_dim)),
                        .window = trial.window};
  // NaNs, where a kernel writes nothing.
  const std::vector<uint16_t> nothing(q.size(), 0xFFFF);
  std::vector<uint16_t> mma(q.size()), wgmma(q.size());
  BATON_RETURN_IF_ERROR(memory.Upload(nothing.data(), device_out.get(), bytes));
  PrefillAttention(device_q.get(), cols, trial.activations, shape, step, ViewOf(store, 0), device_out.get(),
                   cols, stream);
  BATON_RETURN_IF_ERROR(memory.Download(device_out.get(), mma.data(), bytes));
  BATON_RETURN_IF_ERROR(memory.Upload(nothing.data(), device_out.get(), bytes));
  if (const cudaError_t error = kernel(device_q.get(), cols, trial.activations, shape, step, ViewOf(store, 0),
                                       device_out.get(), cols, stream);
      error != cudaSuccess) {
    return absl::InternalError(
        fmt::format("{}: its launch failed with CUDA's error {}", Describe(trial), static_cast<int>(error)));
  }
  BATON_RETURN_IF_ERROR(memory.Download(device_out.get(), wgmma.data(), bytes));
  return Agree(ToFloats(mma, trial.activations), ToFloats(wgmma, trial.activations), Describe(trial));
}

}  // namespace

absl::Status ProveWgmma(device::Memory& memory, cudaStream_t stream, decltype(&WgmmaPrefillAttention) wgmma) {
  std::mt19937 random(kSeed);
  for (const Trial& trial : Trials()) BATON_RETURN_IF_ERROR(Run(trial, memory, stream, wgmma, random));
  return absl::OkStatus();
}

}  // namespace baton::kernels::cuda
