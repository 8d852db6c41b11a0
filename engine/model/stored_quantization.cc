#include "engine/model/stored_quantization.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/base/status.h"

namespace baton::model {
namespace {

// True if there are zeros, and all words of all of them are this one.
bool AllZerosAre(uint32_t wanted, const Checkpoint& checkpoint) {
  bool any = false;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with(".qzeros") || tensor->type != StoredType::kI32) continue;
    for (size_t at = 0; at + sizeof wanted <= tensor->bytes.size(); at += sizeof wanted) {
      uint32_t word;
      std::memcpy(&word, tensor->bytes.data() + at, sizeof word);
      if (word != wanted) return false;
      any = true;
    }
  }
  return any;
}

}  // namespace

absl::StatusOr<QuantizationConfig> LoadQuantization(const std::string& folder, const Checkpoint& checkpoint) {
  BATON_ASSIGN_OR_RETURN(QuantizationConfig config, QuantizationConfig::Load(folder));
  if (config.method != QuantizationConfig::Method::kGptq || !config.symmetric || !config.zeros_less_one) {
    return config;
  }
  config.zeros_say_v2 = AllZerosAre(config.bits == 4 ? 0x88888888 : 0x80808080, checkpoint);
  config.zeros_less_one = !config.zeros_say_v2;
  return config;
}

}  // namespace baton::model
