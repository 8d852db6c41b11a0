#include "tests/bench/kernels/offload_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "engine/kernels/kernels.h"
#include "engine/model/expert_file.h"
#include "engine/model/expert_packing.h"
#include "engine/model/expert_store.h"
#include "engine/model/stored_experts.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

using kernels::Expert;
using kernels::ExpertChoice;
using kernels::Matrix;
using kernels::WeightView;
using model::ExpertMatrices;
using model::ExpertStore;

constexpr int kReaders = 8;  // as the engine's

class OffloadBench {
 public:
  explicit OffloadBench(const OffloadOptions& options)
      : options_(options),
        kernels_(*kernels::MakeCpuKernels({.threads = options.threads})),
        path_(options.folder + "/moe-bench-" + std::to_string(getpid()) + ".experts") {
    for (int l = 0; l < options.layers; ++l) {
      std::vector<int32_t> ids(static_cast<size_t>(options.experts));
      std::iota(ids.begin(), ids.end(), 0);
      std::shuffle(ids.begin(), ids.end(), random_);
      by_rank_.push_back(std::move(ids));
    }
  }
  ~OffloadBench() { unlink(path_.c_str()); }

  absl::Status Run() {
    BATON_RETURN_IF_ERROR(Write());
    BATON_ASSIGN_OR_RETURN(const double plain, ReadPlainly());
    BATON_ASSIGN_OR_RETURN(auto file, model::ExpertFile::Open(path_, {}));
    model::ExpertIndex index = file->index();
    const int64_t bytes =
        (index.begin()->second.bytes + model::kFarPage - 1) / model::kFarPage * model::kFarPage;
    const auto room = static_cast<int64_t>(options_.resident * static_cast<double>(index.size()));
    std::printf("int%d, %d layers, %zu experts of %.2f MB, room for %ld; the file read alone: %.2f GB/s\n",
                options_.bits, options_.layers, index.size(), static_cast<double>(bytes) / 1e6, room,
                plain / 1e9);
    BATON_ASSIGN_OR_RETURN(store_,
                           ExpertStore::Create(std::move(file), std::move(index), room * bytes, kReaders));
    for (auto& layer : outside_) {
      layers_.push_back(std::make_unique<model::StoredExperts>(static_cast<int>(layers_.size()),
                                                               options_.experts, layer, *store_));
    }
    for (const int64_t rows : {1, 4, 16, 256}) Measure(rows, plain);
    return absl::OkStatus();
  }

 private:
  // Random numbers for all, in memory (inside_) and in the file.
  absl::Status Write() {
    const int64_t most = 2 * options_.width * options_.hidden;
    std::vector<int8_t> bytes(static_cast<size_t>(most + 64 * options_.experts));
    for (int8_t& byte : bytes) byte = static_cast<int8_t>(random_() % 255 - 127);
    const std::vector<float> scales(static_cast<size_t>(std::max(2 * options_.width, options_.hidden)),
                                    1e-3f);
    const std::vector<uint8_t> factors(static_cast<size_t>(most / 16), 5);
    BATON_ASSIGN_OR_RETURN(const auto writer, model::ExpertFileWriter::Create(path_, {}));
    inside_.resize(static_cast<size_t>(options_.layers));
    outside_.resize(static_cast<size_t>(options_.layers));
    for (int32_t l = 0; l < options_.layers; ++l) {
      for (int32_t e = 0; e < options_.experts; ++e) {
        const auto pack = [&](int64_t rows, int64_t cols) {
          WeightView view{bytes.data() + 64 * e, tensor::DType::kI8, rows, cols};
          view.quantization = {.bits = options_.bits,
                               .group = options_.bits == 4 ? 16 : cols,
                               .scales = scales.data(),
                               .zeros = options_.bits == 4 ? factors.data() : nullptr,
                               .factors = options_.bits == 4 ? factors.data() : nullptr};
          return kernels_->Pack({&view, 1});
        };
        ExpertMatrices& expert = inside_[static_cast<size_t>(l)].emplace_back();
        BATON_ASSIGN_OR_RETURN(expert.gate_up, pack(2 * options_.width, options_.hidden));
        BATON_ASSIGN_OR_RETURN(expert.down, pack(options_.hidden, options_.width));
        BATON_ASSIGN_OR_RETURN(const std::vector<std::byte> image, model::ImageOf(expert));
        BATON_RETURN_IF_ERROR(writer->Append({l, e}, image));
        ExpertMatrices& far = outside_[static_cast<size_t>(l)].emplace_back();
        far.gate_up = expert.gate_up->Unplaced(expert.gate_up->rows());
        far.down = expert.down->Unplaced(expert.down->rows());
      }
    }
    return writer->Finish({});
  }

  // Bytes a second of every expert, in random order, by as many threads, and nothing done with them.
  absl::StatusOr<double> ReadPlainly() {
    BATON_ASSIGN_OR_RETURN(const auto file, model::ExpertFile::Open(path_, {}));
    std::vector<model::ExpertExtent> extents;
    for (const auto& [id, extent] : file->index()) extents.push_back(extent);
    std::shuffle(extents.begin(), extents.end(), random_);
    const auto whole =
        static_cast<size_t>((extents[0].bytes + model::kFarPage - 1) / model::kFarPage * model::kFarPage);
    device::ThreadPool readers(kReaders);
    std::vector<absl::Status> read(extents.size());
    const double seconds = Seconds([&] {
      readers.ParallelFor(kReaders, [&](int64_t reader) {
        const std::unique_ptr<void, decltype(&std::free)> to(std::aligned_alloc(model::kFarPage, whole),
                                                             &std::free);
        for (auto i = static_cast<size_t>(reader); i < extents.size(); i += kReaders) {
          read[i] = file->Read(extents[i].offset, {static_cast<std::byte*>(to.get()), whole});
        }
      });
    });
    for (const absl::Status& status : read) BATON_RETURN_IF_ERROR(status);
    return static_cast<double>(extents.size() * whole) / seconds;
  }

  // Choices for `rows` rows: different experts each, drawn by rank.
  std::vector<ExpertChoice> Choices(size_t layer, int64_t rows) {
    std::vector<ExpertChoice> choices;
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<double> weights;
      for (int k = 1; k <= options_.experts; ++k) weights.push_back(std::pow(k, -options_.zipf));
      std::vector<int32_t> own;
      for (int c = 0; c < options_.chosen; ++c) {
        const auto rank =
            static_cast<size_t>(std::discrete_distribution<int>(weights.begin(), weights.end())(random_));
        weights[rank] = 0;
        own.push_back(by_rank_[layer][rank]);
      }
      std::ranges::sort(own);
      for (const int32_t id : own) choices.push_back({id, 0.125f});
    }
    return choices;
  }

  // Passes over all layers, the same choices with all experts in memory and with some of them.
  void Measure(int64_t rows, double plain) {
    std::vector<float> x(static_cast<size_t>(rows * options_.hidden)), out(x.size()), far_out(x.size());
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random_);
    const auto matrix = [&](std::vector<float>& values) {
      return Matrix{values.data(), rows, options_.hidden, options_.hidden};
    };
    std::vector<std::vector<Expert>> inside, outside;
    for (const auto& [from, to] : {std::pair(&inside_, &inside), std::pair(&outside_, &outside)}) {
      for (const std::vector<ExpertMatrices>& layer : *from) {
        std::vector<Expert>& experts = to->emplace_back();
        for (const ExpertMatrices& one : layer) experts.push_back({one.gate_up.get(), one.down.get()});
      }
    }
    const int warm = rows >= 64 ? 1 : 64, passes = rows >= 64 ? 1 : 16;
    std::vector<double> near_seconds, far_seconds, share;
    ExpertStore::Stats before;
    for (int i = 0; i < options_.repetitions + 1; ++i) {
      if (i == 1) before = store_->stats();
      double near = 0, far = 0;
      for (int pass = 0; pass < (i == 0 ? warm : passes); ++pass) {
        for (size_t l = 0; l < inside.size(); ++l) {
          std::vector<ExpertChoice> choices = Choices(l, rows);
          const kernels::Choices chosen = {choices.data(), rows, options_.chosen};
          near += Seconds([&] {
            kernels_->Experts(matrix(x), chosen, {.experts = inside[l], .exact_sums = true}, matrix(out),
                              nullptr, {});
          });
          far += Seconds([&] {
            kernels_->Experts(matrix(x), chosen,
                              {.experts = outside[l], .exact_sums = true, .residency = layers_[l].get()},
                              matrix(far_out), nullptr, {});
          });
          if (out != far_out) {
            std::fprintf(stderr, "the bits differ\n");
            std::abort();
          }
        }
      }
      if (i == 0) continue;
      const double calls = passes * static_cast<double>(options_.layers);
      near_seconds.push_back(near / calls);
      far_seconds.push_back(far / calls);
      share.push_back(near / far);
    }
    const ExpertStore::Stats after = store_->stats();
    const auto hits = static_cast<double>(after.hits - before.hits);
    const auto misses = static_cast<double>(after.misses - before.misses);
    const double rate = misses == 0 ? 0
                                    : static_cast<double>(after.bytes_read - before.bytes_read) /
                                          (after.read_seconds - before.read_seconds);
    std::printf(
        "  %4ld rows  %8.1f us a layer in memory  %8.1f us outside  %.2fx  %3.0f%% hits  %.2f GB/s, %3.0f%% "
        "of reading alone\n",
        rows, 1e6 * Median(near_seconds), 1e6 * Median(far_seconds), Median(share),
        100 * hits / (hits + misses), rate / 1e9, 100 * rate / plain);
    std::fflush(stdout);
  }

  const OffloadOptions options_;
  std::unique_ptr<kernels::Kernels> kernels_;
  const std::string path_;
  std::mt19937 random_{11};
  std::vector<std::vector<int32_t>> by_rank_;
  std::vector<std::vector<ExpertMatrices>> inside_, outside_;
  std::unique_ptr<ExpertStore> store_;
  std::vector<std::unique_ptr<model::StoredExperts>> layers_;
};

}  // namespace

bool RunOffload(const OffloadOptions& options) {
  const absl::Status status = OffloadBench(options).Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok();
}

}  // namespace baton::bench
