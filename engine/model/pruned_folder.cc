#include "engine/model/pruned_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/kv/store/kv_store.h"
#include "engine/model/checkpoint.h"
#include "engine/model/expert_scores.h"
#include "engine/model/folder_writer.h"
#include "engine/model/weights.h"
#include "nlohmann/json.hpp"
#include "text/config/json_fields.h"
#include "text/config/quantization.h"

namespace baton::model {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostSourceConfigBytes = 10'000'000;
// Rows whose logits are computed together.
constexpr int64_t kLossRows = 64;

int64_t WindowsOf(int64_t tokens, int64_t window) { return (tokens + window - 1) / window; }

// -log softmax(logits)[token]
double LossOf(std::span<const float> logits, TokenId token) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum) - logits[static_cast<size_t>(token.value())];
}

// A tensor as it will be stored: bytes of the source, or rows of them that are left.
struct KeptTensor {
  std::string name;
  const StoredTensor* from = nullptr;
  std::vector<int64_t> shape;
  const std::vector<int>* rows = nullptr;  // null: all

  absl::Status WriteTo(OutputFile& file) const {
    if (rows == nullptr) return file.Write(from->bytes);
    const int64_t row_bytes = std::ssize(from->bytes) / from->shape[0];
    for (const int row : *rows) {
      BATON_RETURN_IF_ERROR(file.Write(
          from->bytes.subspan(static_cast<size_t>(row * row_bytes), static_cast<size_t>(row_bytes))));
    }
    return absl::OkStatus();
  }
};

// The source's tensors, without the experts that are pruned.
std::vector<KeptTensor> KeptTensors(const Checkpoint& checkpoint, const ModelConfig& config,
                                    std::span<const std::vector<int>> kept) {
  std::vector<KeptTensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    KeptTensor to = {.name = name, .from = tensor, .shape = tensor->shape};
    bool dropped = false;
    for (int l = 0; l < config.layers && config.experts.experts > 0; ++l) {
      if (!config.has_experts(l)) continue;
      const std::string block = fmt::format("model.layers.{}.{}.", l, config.experts.block);
      if (!name.starts_with(block)) continue;
      const std::vector<int>& ids = kept[static_cast<size_t>(l)];
      const std::string rest = name.substr(block.size());
      // Tensors with a row, or a matrix, for each expert.
      if (rest.starts_with(config.experts.router_name + ".") ||
          (config.experts.fused && rest.starts_with("experts."))) {
        to.rows = &ids;
        to.shape[0] = std::ssize(ids);
      } else if (rest.starts_with("experts.")) {
        const size_t end = rest.find('.', 8);
        const int id = std::stoi(rest.substr(8, end - 8));
        const auto at = std::ranges::find(ids, id);
        dropped = at == ids.end();
        to.name = fmt::format("{}experts.{}{}", block, at - ids.begin(), rest.substr(end));
      }
    }
    if (!dropped) tensors.push_back(std::move(to));
  }
  return tensors;
}

absl::StatusOr<OrderedJson> ReadConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMostSourceConfigBytes));
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(path + ": is not a JSON object");
  return json;
}

absl::Status WriteJson(const std::string& path, const OrderedJson& json) {
  OutputFile file(path);
  BATON_RETURN_IF_ERROR(file.Write(json.dump(2) + "\n"));
  return file.Close();
}

absl::StatusOr<int> ExpertsLeft(const PruneOptions& options, const ModelConfig& config) {
  const ExpertConfig& experts = config.experts;
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", options.source, why));
  };
  if (experts.experts == 0) return refused("has no experts that could be left out");
  const int per_group = experts.experts / experts.groups;
  const auto left = static_cast<int>(std::lround(options.keep * per_group));
  if (left >= per_group) return refused(fmt::format("of {} experts none would be left out", experts.experts));
  if (experts.groups > 1 && left < 2) return refused("a group would have less than two experts");
  if (left < 1 || left * experts.chosen_groups < experts.chosen) {
    return refused(fmt::format("{} experts would be left to choose from, of which a token takes {}",
                               left * experts.chosen_groups, experts.chosen));
  }
  return left * experts.groups;
}

OrderedJson ReportOf(const PruneOptions& options, const Pruned& pruned, const ExpertScores& scores,
                     std::span<const std::vector<int>> kept) {
  OrderedJson report = {{"method", "reap"},
                        {"keep", options.keep},
                        {"experts_before", pruned.experts_before},
                        {"experts_after", pruned.experts_after},
                        {"calibration",
                         {{"sha256", options.calibration_digest},
                          {"tokens", std::ssize(options.calibration)},
                          {"held_out_tokens", std::ssize(options.held_out)},
                          {"window", options.window}}},
                        {"loss_before", pruned.loss_before},
                        {"loss_after", pruned.loss_after},
                        {"layers", OrderedJson::array()}};
  for (size_t l = 0; l < kept.size(); ++l) {
    if (kept[l].empty()) continue;
    const auto layer = static_cast<int>(l);
    report["layers"].push_back({{"layer", layer},
                                {"kept", kept[l]},
                                {"scores", scores.Of(layer)},
                                {"tokens", scores.Tokens(layer)}});
  }
  return report;
}

}  // namespace

double MeanLoss(Decoder& decoder, kernels::Kernels& kernels, std::span<const TokenId> tokens, int64_t window,
                absl::FunctionRef<void()> window_done) {
  const int64_t vocabulary = decoder.config().vocabulary;
  auto store = kv::KvStore::Create(decoder.LayoutFor(tensor::DType::kF32, tensor::DType::kF32),
                                   BlocksFor(window), kernels.memory());
  BATON_CHECK(store.ok()) << store.status().message();
  std::vector<BlockId> blocks;
  for (int64_t b = 0; b < BlocksFor(window); ++b) blocks.emplace_back(static_cast<uint32_t>(b));
  double sum = 0;
  int64_t count = 0;
  std::vector<float> logits(static_cast<size_t>(kLossRows * vocabulary));
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += window) {
    const int64_t end = std::min(begin + window, std::ssize(tokens));
    for (int64_t first = begin; first < end; first += kLossRows) {
      const int64_t rows = std::min(kLossRows, end - first);
      const kernels::SequenceRows sequence = {
          .rows = rows, .first_position = first - begin, .blocks = blocks};
      std::vector<int64_t> wanted;
      for (int64_t r = 0; r < rows; ++r) wanted.push_back(r);
      const std::span<float> some = std::span(logits).first(static_cast<size_t>(rows * vocabulary));
      decoder.Forward({tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                       std::span(&sequence, 1), wanted},
                      *store, some, [](int) {});
      for (int64_t r = 0; r < rows && first + r + 1 < end; ++r) {
        sum += LossOf(some.subspan(static_cast<size_t>(r * vocabulary), static_cast<size_t>(vocabulary)),
                      tokens[static_cast<size_t>(first + r + 1)]);
        ++count;
      }
    }
    window_done();
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

absl::Status WriteExperts(const std::string& source, const std::string& target,
                          std::span<const std::vector<int>> kept) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(source));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, QuantizationConfig::Load(source));
  // MXFP4 can be pruned as it is stored.
  if (stored.method != QuantizationConfig::Method::kNone &&
      stored.method != QuantizationConfig::Method::kMxfp4) {
    return absl::InvalidArgumentError(
        fmt::format("{}: is quantized ({}): prune the original", source, stored.Describe()));
  }
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(source));
  BATON_RETURN_IF_ERROR(CheckWeights(source, checkpoint, config, stored));
  BATON_ASSIGN_OR_RETURN(OrderedJson json, ReadConfig(source));
  BATON_RETURN_IF_ERROR(MakeTarget(target));
  const std::vector<KeptTensor> tensors = KeptTensors(checkpoint, config, kept);
  SafetensorsHeader header;
  for (const KeptTensor& tensor : tensors) {
    header.Add(tensor.name, tensor.from->type, tensor.shape);
  }
  OutputFile file(target + "/model.safetensors");
  BATON_RETURN_IF_ERROR(file.Write(header.Bytes()));
  for (const KeptTensor& tensor : tensors) BATON_RETURN_IF_ERROR(tensor.WriteTo(file));
  BATON_RETURN_IF_ERROR(file.Close());
  BATON_RETURN_IF_ERROR(CopyOthers(source, target));
  int64_t left = 0;
  for (const std::vector<int>& ids : kept) left = std::max<int64_t>(left, std::ssize(ids));
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (json.contains(name)) json[name] = left;
  }
  return WriteJson(target + "/config.json", json);
}

absl::StatusOr<Pruned> PruneExperts(const PruneOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.source));
  BATON_ASSIGN_OR_RETURN(const int left, ExpertsLeft(options, config));
  std::error_code error;
  if (std::filesystem::exists(options.target, error) && !std::filesystem::is_empty(options.target, error)) {
    return absl::AlreadyExistsError(fmt::format("{}: is there already; name a new folder", options.target));
  }
  const int64_t window = std::min(options.window, config.context);
  for (const std::span<const TokenId> tokens : {options.calibration, options.held_out}) {
    if (tokens.size() < 2)
      return absl::InvalidArgumentError("the text is too short: give at least two windows");
    if (std::ranges::any_of(tokens, [&](TokenId token) { return token.value() >= config.vocabulary; })) {
      return absl::InvalidArgumentError(
          fmt::format("{}: its tokenizer has tokens that its embedding lacks", options.source));
    }
  }
  int64_t done = 0;
  const int64_t all = WindowsOf(std::ssize(options.calibration), window) +
                      2 * WindowsOf(std::ssize(options.held_out), window);
  const auto window_done = [&] {
    ++done;
    if (options.progress) options.progress(done, all);
  };
  BATON_ASSIGN_OR_RETURN(const auto kernels, kernels::MakeCpuKernels({.threads = options.threads}));
  Pruned pruned = {.experts_before = config.experts.experts,
                   .experts_after = left,
                   .parameters_before = config.parameters()};
  ExpertScores scores(config);
  {
    BATON_ASSIGN_OR_RETURN(const auto decoder,
                           Decoder::Load(options.source, *kernels, {.precision = options.precision}));
    decoder->Observe(&scores);
    MeanLoss(*decoder, *kernels, options.calibration, window, window_done);
    decoder->Observe(nullptr);
    pruned.loss_before = MeanLoss(*decoder, *kernels, options.held_out, window, window_done);
  }
  std::vector<std::vector<int>> kept(static_cast<size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) {
    if (!config.has_experts(l)) continue;
    kept[static_cast<size_t>(l)] = BestExperts(scores.Of(l), left, config.experts.groups);
  }
  BATON_RETURN_IF_ERROR(WriteExperts(options.source, options.target, kept));
  BATON_ASSIGN_OR_RETURN(const auto decoder,
                         Decoder::Load(options.target, *kernels, {.precision = options.precision}));
  pruned.parameters_after = decoder->config().parameters();
  pruned.loss_after = MeanLoss(*decoder, *kernels, options.held_out, window, window_done);
  BATON_RETURN_IF_ERROR(WriteJson(options.target + "/prune.json", ReportOf(options, pruned, scores, kept)));
  return pruned;
}

}  // namespace baton::model
