// How fast the experts of one layer are on the cpu backend, in the shape of Qwen3-30B-A3B (hidden 2048, 128
// experts of width 768, of which a row takes 8), beside the rate at which this machine reads memory, measured
// in the same repetition. Each call routes its rows anew, at random, so that few weights are still cached.
// With --offload FOLDER: those of several layers in a file there (offload_bench.h).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/device/thread_pool.h"
#include "engine/kernels/kernels.h"
#include "lab/bench/machine_limits.h"
#include "tests/bench/kernels/offload_bench.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

using kernels::Expert;
using kernels::ExpertChoice;
using kernels::Matrix;
using kernels::WeightView;

struct Shape {
  int64_t hidden = 2048, width = 768;
  int experts = 128, chosen = 8;
};

class MoeBench {
 public:
  MoeBench(const Shape& shape, int threads, int repetitions)
      : shape_(shape),
        repetitions_(repetitions),
        pool_(threads),
        kernels_(*kernels::MakeCpuKernels({.threads = threads})),
        big_(int64_t{64} << 20) {}

  void Run(int bits) {
    Pack(bits);
    for (const int64_t rows : {1, 4, 8, 16, 64, 512}) Measure(bits, rows);
  }

 private:
  // Random bytes at another place for each matrix; what they stand for does not matter here.
  void Pack(int bits) {
    const int64_t most = 2 * shape_.width * shape_.hidden;
    std::vector<int8_t> bytes(static_cast<size_t>(most + 64 * shape_.experts));
    for (int8_t& byte : bytes) byte = static_cast<int8_t>(random_() % 255 - 127);
    const std::vector<float> scales(static_cast<size_t>(std::max(2 * shape_.width, shape_.hidden)), 1e-3f);
    const std::vector<uint8_t> factors(static_cast<size_t>(most / 16), 5);
    matrices_.clear();
    experts_.clear();
    for (int e = 0; e < shape_.experts; ++e) {
      for (const auto& [rows, cols] :
           {std::pair{2 * shape_.width, shape_.hidden}, {shape_.hidden, shape_.width}}) {
        WeightView view{bytes.data() + 64 * e, tensor::DType::kI8, rows, cols};
        view.quantization = {.bits = bits,
                             .group = bits == 4 ? 16 : cols,
                             .scales = scales.data(),
                             .zeros = bits == 4 ? factors.data() : nullptr,
                             .factors = bits == 4 ? factors.data() : nullptr};
        matrices_.push_back(*kernels_->Pack({&view, 1}));
      }
      experts_.push_back({matrices_[matrices_.size() - 2].get(), matrices_.back().get()});
    }
  }

  std::vector<ExpertChoice> Choices(int64_t rows) {
    std::vector<ExpertChoice> choices;
    std::vector<int32_t> ids(static_cast<size_t>(shape_.experts));
    std::iota(ids.begin(), ids.end(), 0);
    for (int64_t r = 0; r < rows; ++r) {
      std::shuffle(ids.begin(), ids.end(), random_);
      std::vector<int32_t> own(ids.begin(), ids.begin() + shape_.chosen);
      std::ranges::sort(own);
      for (const int32_t id : own) choices.push_back({id, 0.125f});
    }
    return choices;
  }

  void Measure(int bits, int64_t rows) {
    std::vector<float> x(static_cast<size_t>(rows * shape_.hidden)), out(x.size());
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random_);
    const Matrix in = {x.data(), rows, shape_.hidden, shape_.hidden},
                 to = {out.data(), rows, in.cols, in.cols};
    std::vector<double> seconds, rate, share, different;
    for (int i = 0; i < repetitions_ + 1; ++i) {
      const int calls = rows >= 64 ? 1 : 8;
      std::vector<std::vector<ExpertChoice>> choices;
      double bytes = 0, distinct = 0;
      for (int c = 0; c < calls; ++c) {
        choices.push_back(Choices(rows));
        std::vector<bool> used(experts_.size());
        for (const ExpertChoice& choice : choices.back()) used[static_cast<size_t>(choice.expert)] = true;
        for (size_t e = 0; e < used.size(); ++e) {
          if (!used[e]) continue;
          bytes += static_cast<double>(experts_[e].gate_up->bytes() + experts_[e].down->bytes());
          ++distinct;
        }
      }
      const double took = Seconds([&] {
        for (std::vector<ExpertChoice>& some : choices) {
          kernels_->Experts(in, {some.data(), rows, shape_.chosen}, {.experts = experts_, .exact_sums = true},
                            to, nullptr, {});
        }
      });
      int64_t read = 0;
      const double reading = Seconds([&] { read = lab::bench::ReadAll(pool_, big_.data()); });
      if (i == 0) continue;  // memory is taken, threads wake up
      seconds.push_back(took / calls);
      rate.push_back(bytes / took);
      share.push_back(bytes / took / (static_cast<double>(read) / reading));
      different.push_back(distinct / calls);
    }
    std::printf(
        "  int%d  %4ld rows  %6.1f experts read  %9.1f us a layer  %6.1f GB/s  %4.0f%% of reading alone\n",
        bits, rows, Median(different), 1e6 * Median(seconds), Median(rate) / 1e9, 100 * Median(share));
    std::fflush(stdout);
  }

  const Shape shape_;
  const int repetitions_;
  device::ThreadPool pool_;
  std::unique_ptr<kernels::Kernels> kernels_;
  lab::bench::ReadBuffer big_;
  std::mt19937 random_{11};
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices_;
  std::vector<Expert> experts_;
};

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  CLI::App app("Experts of a mixture beside this machine's memory");
  int threads = 0, repetitions = 7;
  baton::bench::Shape shape;
  app.add_option("--threads", threads, "0: all cores");
  app.add_option("--repetitions", repetitions)->check(CLI::Range(1, 1000));
  app.add_option("--hidden", shape.hidden);
  app.add_option("--width", shape.width);
  app.add_option("--experts", shape.experts);
  app.add_option("--chosen", shape.chosen);
  baton::bench::OffloadOptions offload;
  CLI::Option* const outside = app.add_option("--offload", offload.folder,
                                              "Folder for a file of experts, of which a share is in memory");
  app.add_option("--resident", offload.resident, "That share")->check(CLI::Range(0.01, 1.0))->needs(outside);
  app.add_option("--zipf", offload.zipf, "Exponent of the experts' popularity; 0: all alike")->needs(outside);
  app.add_option("--layers", offload.layers)->check(CLI::Range(1, 128))->needs(outside);
  app.add_option("--bits", offload.bits)->check(CLI::IsMember({4, 8}))->needs(outside);
  CLI11_PARSE(app, argc, argv);
  if (threads == 0) threads = baton::device::UsableCores();
  if (!outside->empty()) {
    offload.hidden = shape.hidden, offload.width = shape.width;
    offload.experts = shape.experts, offload.chosen = shape.chosen;
    offload.threads = threads, offload.repetitions = repetitions;
    return baton::bench::RunOffload(offload) ? 0 : 1;
  }
  std::printf("hidden %ld, %d of %d experts of width %ld, %d threads\n", shape.hidden, shape.chosen,
              shape.experts, shape.width, threads);
  baton::bench::MoeBench bench(shape, threads, repetitions);
  for (const int bits : {8, 4}) bench.Run(bits);
  return 0;
}
