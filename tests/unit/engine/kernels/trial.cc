#include "tests/unit/engine/kernels/trial.h"

#include <algorithm>

namespace baton::kernels {

std::vector<Served> Serve(Kernels& kernels, const Workload& work, const Schedule& schedule, Random& random) {
  constexpr int kLayers = 2, kLayer = 1;
  const AttentionShape& shape = work.shape.attention;
  const kv::KvLayout layout = {.layers = kLayers,
                               .kv_heads = shape.kv_heads,
                               .head_dim = kv::StoredHeadDim(shape.head_dim),
                               .key_dtype = work.shape.key_dtype,
                               .value_dtype = work.shape.value_dtype};
  constexpr int64_t kSpare = 5;
  int64_t total = kSpare;
  for (size_t s : schedule.sequences) total += BlocksFor(work.tokens(s));
  kv::KvStore store = *kv::KvStore::Create(layout, total);
  for (int64_t b = 0; b < total; ++b) {
    std::memset(store.block(BlockId(static_cast<uint32_t>(b))), 0xFF,
                static_cast<size_t>(layout.block_bytes()));
  }
  std::vector<BlockId> free;
  for (int64_t b = 0; b < total; ++b) free.emplace_back(static_cast<uint32_t>(b));
  random.Shuffle(free);

  struct Progress {
    size_t sequence;
    int64_t done = 0;
    std::vector<BlockId> blocks;
  };
  std::vector<Progress> live;
  std::vector<Served> served(schedule.sequences.size());
  for (size_t s : schedule.sequences) {
    Progress progress{.sequence = s, .done = 0, .blocks = {}};
    for (int64_t b = 0; b < BlocksFor(work.tokens(s)); ++b) {
      progress.blocks.push_back(free.back());
      free.pop_back();
    }
    live.push_back(progress);
  }
  const int64_t cols = work.shape.cols();
  const int64_t q_cols = int64_t{shape.heads} * shape.head_dim;
  const RopeTable rope = {work.cos, work.sin, shape.head_dim / 2};
  const auto unfinished = [&] {
    return std::any_of(live.begin(), live.end(), [&](auto& p) { return p.done < work.tokens(p.sequence); });
  };
  while (unfinished()) {
    // This step's batch: (index into live, rows).
    std::vector<std::pair<size_t, int64_t>> batch;
    int64_t rows = 0;
    for (size_t i = 0; i < live.size(); ++i) {
      const int64_t left = std::min(work.tokens(live[i].sequence) - live[i].done, schedule.longest_chunk);
      if (left == 0 || (schedule.interleave && random.Int(0, 2) == 0)) continue;
      batch.emplace_back(i, schedule.interleave ? random.Int(1, left) : left);
    }
    if (schedule.interleave) random.Shuffle(batch);
    for (auto& [i, count] : batch) rows += count;
    OwnedMatrix qkv(rows, cols, 3), out(rows, q_cols, 5);
    std::vector<SequenceRows> sequences;
    int64_t row = 0;
    for (auto& [i, count] : batch) {
      const Progress& p = live[i];
      for (int64_t r = 0; r < count; ++r) {
        std::copy_n(work.qkv[p.sequence].data() + (p.done + r) * cols, cols, qkv.view().row(row + r));
      }
      sequences.push_back({.first_row = row,
                           .rows = count,
                           .first_position = p.done,
                           .blocks = std::span(p.blocks).first(BlocksFor(p.done + count))});
      row += count;
    }
    kernels.RotateAndStore(qkv.view(), shape, {work.q_norm, work.k_norm, 1e-6f}, rope, sequences, kLayer,
                           store);
    kernels.Attention(qkv.view().Columns(0, q_cols), shape, sequences, kLayer, store, out.view());
    EXPECT_TRUE(qkv.GapsIntact());
    EXPECT_TRUE(out.GapsIntact());
    row = 0;
    for (auto& [i, count] : batch) {
      for (int64_t r = 0; r < count; ++r, ++row) {
        const float* q = qkv.view().row(row);
        served[i].q.insert(served[i].q.end(), q, q + q_cols);
        const std::vector<float> result = out.row(row);
        served[i].out.insert(served[i].out.end(), result.begin(), result.end());
      }
      live[i].done += count;
    }
  }
  for (size_t i = 0; i < live.size(); ++i) {
    for (BlockId block : live[i].blocks) {
      const std::byte* bytes = store.block(block);
      served[i].kv.insert(served[i].kv.end(), bytes, bytes + layout.block_bytes());
    }
  }
  return served;
}

}  // namespace baton::kernels
