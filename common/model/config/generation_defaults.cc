#include <filesystem>

#include "common/base/status.h"
#include "common/model/config/config.h"
#include "common/model/config/gguf_config.h"
#include "common/model/config/json_fields.h"

namespace baton::model {
namespace {

constexpr char kFile[] = "generation_config.json";
constexpr int64_t kMaxBytes = 1 << 20;

std::optional<float> OptionalNumber(JsonFields& fields, std::string_view name, JsonFields::Range range) {
  if (!fields.Has(name)) return std::nullopt;
  return static_cast<float>(fields.Number(name, range));
}

std::optional<int> OptionalInteger(JsonFields& fields, std::string_view name, int64_t low) {
  if (!fields.Has(name)) return std::nullopt;
  return static_cast<int>(fields.Integer(name, low, INT32_MAX));
}

}  // namespace

absl::StatusOr<GenerationDefaults> GenerationDefaults::Load(const std::string& folder) {
  GenerationDefaults defaults;
  const bool gguf = gguf::IsGguf(folder);
  const std::string path = gguf ? folder : std::string(std::filesystem::path(folder) / kFile);
  Json json;
  if (gguf) {
    BATON_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(path));
    BATON_ASSIGN_OR_RETURN(json, GenerationOfGguf(file.document));
  } else {
    const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxBytes);
    if (absl::IsNotFound(text.status())) return defaults;
    BATON_RETURN_IF_ERROR(text.status());
    BATON_ASSIGN_OR_RETURN(json, ParseJson(*text, path));
  }
  JsonFields fields(json, path);
  defaults.temperature = OptionalNumber(fields, "temperature", {.low = 0});
  defaults.top_p = OptionalNumber(fields, "top_p", {.low = 0, .high = 1, .low_open = true});
  defaults.min_p = OptionalNumber(fields, "min_p", {.low = 0, .high = 1});
  defaults.repetition_penalty = OptionalNumber(fields, "repetition_penalty", {.low = 0, .low_open = true});
  defaults.top_k = OptionalInteger(fields, "top_k", 0);
  defaults.max_new_tokens = OptionalInteger(fields, "max_new_tokens", 1);
  defaults.do_sample = fields.Flag("do_sample", true);
  BATON_RETURN_IF_ERROR(fields.status());
  return defaults;
}

}  // namespace baton::model
