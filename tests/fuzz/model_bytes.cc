#include "tests/fuzz/model_bytes.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "common/base/status.h"
#include "engine/model/rope.h"
#include "engine/model/safetensors.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

}  // namespace

absl::StatusOr<bool> FuzzSafetensors(std::span<const uint8_t> bytes) {
  const auto tensors = ParseSafetensors(std::as_bytes(bytes), "fuzz");
  if (!tensors.ok()) {
    return tensors.status().message().empty() ? Unsound("refused without a message")
                                              : absl::StatusOr<bool>(false);
  }
  const std::byte* end = std::as_bytes(bytes).data() + bytes.size();
  const std::byte* at = nullptr;
  unsigned sum = 0;
  for (const StoredTensor& tensor : *tensors) {
    uint64_t size = static_cast<uint64_t>(SizeOf(tensor.type));
    for (int64_t extent : tensor.shape) size *= static_cast<uint64_t>(extent);
    if (size != tensor.bytes.size())
      return Unsound(fmt::format("{}: {} bytes", tensor.name, tensor.bytes.size()));
    if (at != nullptr && tensor.bytes.data() != at)
      return Unsound(fmt::format("{}: not contiguous", tensor.name));
    at = tensor.bytes.data() + tensor.bytes.size();
    for (std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);  // AddressSanitizer looks on
  }
  if (!tensors->empty() && at != end)
    return Unsound(fmt::format("does not end at the end of the file (sum {})", sum));
  return true;
}

absl::StatusOr<bool> FuzzConfig(std::span<const uint8_t> bytes) {
  const auto config = ModelConfig::FromJson(std::string(bytes.begin(), bytes.end()));
  if (!config.ok()) {
    return config.status().message().empty() ? Unsound("refused without a message")
                                             : absl::StatusOr<bool>(false);
  }
  if (config->layers < 1 || config->windows.size() != static_cast<size_t>(config->layers))
    return Unsound("layers");
  if (config->heads % config->kv_heads != 0) return Unsound("heads");
  if (config->head_dim < 2 || config->head_dim % 2 != 0) return Unsound("head_dim");
  if (config->parameters() <= 0) return Unsound("sizes");
  if (config->Canonical().empty() || config->Describe().empty()) return Unsound("text");
  for (TokenId id : config->eos) {
    if (id.value() < 0 || id.value() >= config->vocabulary) return Unsound("eos");
  }
  for (float frequency : FrequenciesFor(*config).inverse) {
    if (!std::isfinite(frequency) || frequency < 0)
      return Unsound(fmt::format("rope frequency {}", frequency));
  }
  const auto angles = RopeAngles::Create(*config, /*max_bytes=*/1 << 16);
  if (angles.ok() && angles->bytes() > 1 << 16) return Unsound("rope bytes");
  return true;
}

}  // namespace baton::model
