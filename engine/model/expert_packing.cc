#include "engine/model/expert_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/kernels/kernels.h"
#include "engine/model/checkpoint.h"
#include "engine/model/decoder.h"
#include "engine/model/shard.h"
#include "engine/model/stored_quantization.h"

namespace baton::model {
namespace {

// Where kernels may read matrices.
constexpr int64_t kMatrixAlignment = 64;
// The layout of images; grows when that of panels changes. 2: pairs of columns of bfloat16.
constexpr char kLayout[] = "panels/2";
// For experts while a file is checked.
constexpr int64_t kCheckingMemory = int64_t{1} << 30;

int64_t DownOffset(const ExpertMatrices& expert) {
  return (expert.gate_up->bytes() + kMatrixAlignment - 1) / kMatrixAlignment * kMatrixAlignment;
}

int64_t ImageBytes(const ExpertMatrices& expert) { return DownOffset(expert) + expert.down->bytes(); }

// Whatever else is under that name stays.
absl::Status MayReplace(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return absl::OkStatus();
  const absl::Status status = ExpertFile::Open(file, Sha256Digest{}).status();
  if (status.code() != absl::StatusCode::kInvalidArgument) return absl::OkStatus();
  return absl::AlreadyExistsError(
      fmt::format("{}: is there and is no file of packed experts: name another, or remove it first", file));
}

// The file's content, if it is whole and of these weights.
absl::StatusOr<PackedExperts> FindPacked(const PackOptions& options, const ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(auto file,
                         ExpertFile::Open(options.file, ExpertFingerprint(config, options.precision)));
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(options.file, error));
  const PackedExperts packed = {.experts = std::ssize(file->index()), .bytes = bytes, .were_there = true};
  file.reset();
  BATON_ASSIGN_OR_RETURN(const auto kernels, kernels::MakeCpuKernels({.threads = options.threads}));
  // A load checks all of it. It needs room for one expert.
  BATON_RETURN_IF_ERROR(Decoder::Load(options.folder, *kernels,
                                      {.precision = options.precision,
                                       .threads = options.threads,
                                       .expert_file = options.file,
                                       .expert_memory = kCheckingMemory})
                            .status());
  return packed;
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> ImageOf(const ExpertMatrices& expert) {
  const std::span<const std::byte> gate_up = expert.gate_up->image(), down = expert.down->image();
  if (gate_up.empty() || down.empty()) {
    return absl::UnimplementedError(
        "this backend keeps all experts in memory: use --backend cpu, or leave out --expert-file");
  }
  std::vector<std::byte> image(static_cast<size_t>(DownOffset(expert)) + down.size());
  std::ranges::copy(gate_up, image.begin());
  std::ranges::copy(down, image.begin() + DownOffset(expert));
  return image;
}

void PlaceExpert(std::span<const std::byte> image, const ExpertMatrices& expert) {
  BATON_CHECK_EQ(std::ssize(image), ImageBytes(expert));
  expert.gate_up->Place(image.first(static_cast<size_t>(expert.gate_up->bytes())));
  expert.down->Place(image.subspan(static_cast<size_t>(DownOffset(expert))));
}

void DropExpert(const ExpertMatrices& expert) {
  expert.gate_up->Place({});
  expert.down->Place({});
}

Sha256Digest ExpertFingerprint(const ModelConfig& config, WeightPrecision precision) {
  Sha256 sha;
  sha.Update(config.Digest());
  sha.Update(fmt::format("{} {}", kLayout, Name(precision)));
  return sha.Finish();
}

absl::Status CheckFits(const ExpertFile& file, std::string_view weights_digest, const Weights& weights) {
  const auto* own = reinterpret_cast<const char*>(file.weights().data());
  if (weights_digest != std::string_view(own, file.weights().size())) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: was packed of other weights than this model has, or by another version: pack the experts again "
        "(baton model pack)",
        file.name()));
  }
  size_t found = 0;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const auto* layer = std::get_if<ExpertWeights>(&weights.layers[l].feed_forward);
    if (layer == nullptr) continue;
    for (size_t e = 0; e < layer->experts.size(); ++e) {
      const ExpertMatrices& expert = layer->experts[e];
      if (!expert.gate_up->image().empty()) continue;  // it is shared, and in memory
      const auto entry = file.index().find({static_cast<int32_t>(l), static_cast<int32_t>(e)});
      if (entry == file.index().end() || entry->second.bytes != ImageBytes(expert)) {
        return absl::FailedPreconditionError(
            fmt::format("{}: expert {} of layer {} is not there, or has another form: pack the experts again "
                        "(baton model pack)",
                        file.name(), e, l));
      }
      ++found;
    }
  }
  if (found == file.index().size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: has {} experts, and the model {}: pack the experts again (baton model pack)",
                  file.name(), file.index().size(), found));
}

absl::StatusOr<PackedExperts> PackExperts(const PackOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.folder));
  if (config.experts.experts == 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: is no mixture of experts: there is nothing to pack", options.folder));
  }
  BATON_RETURN_IF_ERROR(MayReplace(options.file));
  if (const absl::StatusOr<PackedExperts> there = FindPacked(options, config); there.ok()) return there;
  BATON_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.folder));
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig stored, LoadQuantization(options.folder, checkpoint));
  BATON_ASSIGN_OR_RETURN(const auto kernels, kernels::MakeCpuKernels({.threads = options.threads}));
  Quantizer quantizer(options.precision, options.threads);
  quantizer.Report(options.progress);
  if (kernels->takes_transforms()) quantizer.TransformColumns();
  BATON_ASSIGN_OR_RETURN(const auto writer, ExpertFileWriter::Create(
                                                options.file, ExpertFingerprint(config, options.precision)));
  PackedExperts packed;
  const auto append = [&](ExpertId id, ExpertMatrices& expert) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::byte> image, ImageOf(expert));
    DropExpert(expert);
    ++packed.experts;
    return writer->Append(id, image);
  };
  BATON_ASSIGN_OR_RETURN(const Weights weights,
                         PackWeights(options.folder, checkpoint, config, stored, Shard{}, *kernels, quantizer,
                                     {.packed = append}));
  const std::string digest = WeightsDigest(checkpoint, stored, weights.converted, quantizer);
  Sha256Digest written{};
  BATON_CHECK_EQ(digest.size(), written.size());
  std::ranges::copy(digest, written.begin());
  BATON_RETURN_IF_ERROR(writer->Finish(written));
  packed.bytes = writer->bytes();
  return packed;
}

}  // namespace baton::model
