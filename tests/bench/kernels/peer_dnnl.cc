#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>
#include <vector>

#include "tests/bench/kernels/peer.h"

namespace baton::bench {
namespace {

using dnnl::memory;

class DnnlProduct final : public Peer {
 public:
  DnnlProduct(int64_t rows, int64_t features, int64_t depth, memory::data_type type)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const memory::desc x({rows, depth}, type, memory::format_tag::ab);
    const memory::desc w({depth, features}, type, memory::format_tag::any);  // the library's own packing
    const memory::desc out({rows, features}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(x, w, out), engine_);
    product_ = dnnl::matmul(product);
    // Ones, as floats or bfloat16s.
    std::vector<float> ones(static_cast<size_t>(std::max(rows, features) * depth), 1.0f);
    const auto filled = [&](const memory::desc& target, int64_t a, int64_t b) {
      memory source({{a, b}, memory::data_type::f32, memory::format_tag::ab}, engine_, ones.data());
      memory result(target, engine_);
      dnnl::reorder(source, result).execute(stream_, source, result);
      stream_.wait();
      return result;
    };
    arguments_ = {{DNNL_ARG_SRC, filled(product.src_desc(), rows, depth)},
                  {DNNL_ARG_WEIGHTS, filled(product.weights_desc(), depth, features)},
                  {DNNL_ARG_DST, memory(product.dst_desc(), engine_)}};
  }

  void Run() override {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::unordered_map<int, memory> arguments_;
};

}  // namespace

std::string PeerName() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

void SetPeerThreads(int threads) { omp_set_num_threads(threads); }

std::unique_ptr<Peer> MakePeer(int64_t rows, int64_t features, int64_t depth, tensor::DType weights) {
  try {
    return std::make_unique<DnnlProduct>(
        rows, features, depth,
        weights == tensor::DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32);
  } catch (const dnnl::error&) {
    return nullptr;  // this machine has no such product
  }
}

}  // namespace baton::bench
