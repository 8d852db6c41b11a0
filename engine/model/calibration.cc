#include "engine/model/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/kernels/column_transform.h"

namespace baton::model {
namespace {

using kernels::Matrix;

// An input of matrices: transformed activations of all texts, [columns][rows].
struct Seen {
  std::vector<std::string> tensors;
  int64_t cols = 0, rows = 0;
  std::vector<float> columns;
};

}  // namespace

Calibration::Calibration(const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
                         kernels::Kernels& kernels, device::ThreadPool& pool, Quantizer& quantizer)
    : config_(config),
      kernels_(kernels),
      pool_(pool),
      quantizer_(quantizer),
      stored_(folder, checkpoint, config, {}, kernels),
      rounded_(folder, checkpoint, config, {}, kernels, &quantizer) {
  for (MatrixShape& shape : MatricesOf(checkpoint, config)) {
    std::string name = shape.name;
    shapes_.emplace(std::move(name), std::move(shape));
  }
  quantizer_.FeedBack([this](std::string_view tensor) -> const ErrorFeedback* {
    const auto found = feedback_.find(tensor);
    return found == feedback_.end() ? nullptr : found->second.get();
  });
}
Calibration::~Calibration() { quantizer_.FeedBack({}); }

absl::StatusOr<std::unique_ptr<Calibration>> Calibration::Create(
    const std::string& folder, const Checkpoint& checkpoint, const ModelConfig& config,
    kernels::Kernels& kernels, device::ThreadPool& pool, Quantizer& quantizer,
    const std::vector<std::vector<TokenId>>& texts) {
  if (config.experts.experts > 0) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: is a mixture of experts, of which few tokens reach each one: leave out --calibration", folder));
  }
  if (quantizer.precision() != WeightPrecision::kInt4) {
    return absl::InvalidArgumentError(
        "a calibration is for matrices of 4 bits (int4): others lose too little");
  }
  std::vector<int64_t> rows, ids;
  for (const std::vector<TokenId>& text : texts) {
    if (text.empty()) return absl::InvalidArgumentError("a text has no tokens");
    if (std::ssize(text) > config.context) {
      return absl::InvalidArgumentError(
          fmt::format("a text of {} tokens is longer than the context of {}", text.size(), config.context));
    }
    rows.push_back(std::ssize(text));
    for (const TokenId token : text) {
      if (token.value() < 0 || token.value() >= config.vocabulary) {
        return absl::InvalidArgumentError(fmt::format("a text has the token {}, and the vocabulary is {}",
                                                      token.value(), config.vocabulary));
      }
      ids.push_back(token.value());
    }
  }
  std::unique_ptr<Calibration> made(new Calibration(folder, checkpoint, config, kernels, pool, quantizer));
  BATON_ASSIGN_OR_RETURN(made->rope_, RopeAngles::Create(config));
  made->other_layers_ = OtherLayers(config);
  if (!made->other_layers_.empty()) {
    BATON_ASSIGN_OR_RETURN(made->other_rope_, RopeAngles::Other(config));
  }
  BATON_ASSIGN_OR_RETURN(made->pass_, LayerPass::Create(config, kernels, std::move(rows)));
  BATON_ASSIGN_OR_RETURN(const auto embeddings, made->stored_.Embeddings(ids));
  made->pass_->Begin(*embeddings);
  return made;
}

kernels::RopeTable Calibration::RopeOf(int layer) const {
  const bool other = !other_layers_.empty() && other_layers_[static_cast<size_t>(layer)];
  return other ? other_rope_->table() : rope_->table();
}

absl::Status Calibration::Enter(int layer) {
  BATON_CHECK(layer == layer_ + 1) << layer << " after " << layer_;
  if (layer_ >= 0) {
    BATON_ASSIGN_OR_RETURN(const StoredLayer rounded, rounded_.Layer(layer_));
    pass_->Layer(layer_, rounded, RopeOf(layer_), [](Matrix, const std::vector<std::string>&) {});
  }
  layer_ = layer;
  feedback_.clear();

  BATON_ASSIGN_OR_RETURN(const StoredLayer stored, stored_.Layer(layer));
  std::vector<float> before = pass_->stream();
  const int64_t all = std::ssize(before) / config_.hidden;
  std::map<std::string, Seen> inputs;  // by the first tensor that they go into
  pass_->Layer(layer, stored, RopeOf(layer), [&](Matrix x, const std::vector<std::string>& tensors) {
    const auto four_bits = [&](const std::string& tensor) {
      return PrecisionFor(quantizer_.precision(), tensor) == WeightPrecision::kInt4;
    };
    if (std::ranges::none_of(tensors, four_bits)) return;
    Seen& seen = inputs[tensors.front()];
    if (seen.columns.empty()) {
      seen.tensors = tensors;
      seen.cols = x.cols;
      seen.columns.resize(static_cast<size_t>(x.cols * all));
    }
    const int8_t* const exponents = quantizer_.exponents().Of(tensors.front());
    const int64_t block = quantizer_.transforms() ? shapes_.find(tensors.front())->second.block : 1;
    std::vector<float> row(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
      std::copy_n(x.row(r), x.cols, row.begin());
      for (int64_t k = 0; exponents != nullptr && k < x.cols; ++k) {
        row[static_cast<size_t>(k)] *= kernels::PowerOfTwo(-exponents[k]);
      }
      kernels::Hadamard(row, block);
      for (int64_t k = 0; k < x.cols; ++k) {
        seen.columns[static_cast<size_t>(k * all + seen.rows)] = row[static_cast<size_t>(k)];
      }
      ++seen.rows;
    }
  });
  pass_->Restore(std::move(before));

  for (auto& [name, seen] : inputs) {
    // X^T X is a product of the columns with themselves.
    std::vector<float> moments(static_cast<size_t>(seen.cols * seen.cols));
    {
      const kernels::WeightView view = {
          .data = seen.columns.data(), .dtype = tensor::DType::kF32, .rows = seen.cols, .cols = all};
      BATON_ASSIGN_OR_RETURN(const auto packed, kernels_.Pack({&view, 1}));
      kernels_.MatMul({seen.columns.data(), seen.cols, all, all}, *packed, {},
                      {moments.data(), seen.cols, seen.cols, seen.cols});
    }
    seen.columns = {};
    absl::StatusOr<ErrorFeedback> feedback = ErrorFeedback::Create(std::move(moments), seen.cols, pool_);
    if (!feedback.ok()) {
      return absl::Status(feedback.status().code(),
                          fmt::format("tensor \"{}\": {}", name, std::string(feedback.status().message())));
    }
    const auto shared = std::make_shared<const ErrorFeedback>(*std::move(feedback));
    for (const std::string& tensor : seen.tensors) feedback_[tensor] = shared;
  }
  return absl::OkStatus();
}

}  // namespace baton::model
