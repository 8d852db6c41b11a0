#include <filesystem>

#include "common/base/status.h"
#include "text/config/config.h"
#include "text/config/gguf_config.h"
#include "text/config/json_fields.h"

namespace baton::model {
namespace {

constexpr char kFile[] = "generation_config.json";
constexpr int64_t kMaxBytes = 1 << 20;

// Reads fields one by one, so that one which can't be used costs no other.
class DefaultFields {
 public:
  DefaultFields(const Json& json, const std::string& path, std::vector<std::string>& left_out)
      : json_(json), path_(path), left_out_(left_out) {}

  std::optional<float> Number(std::string_view name, JsonFields::Range range) {
    return Read<float>(name, [&](JsonFields& fields) { return fields.Number(name, range); });
  }
  std::optional<int> Integer(std::string_view name, int64_t low) {
    return Read<int>(name, [&](JsonFields& fields) { return fields.Integer(name, low, INT32_MAX); });
  }
  std::optional<bool> Flag(std::string_view name) {
    return Read<bool>(name, [&](JsonFields& fields) { return fields.Flag(name); });
  }
  // EndTokens leaves the same ids out.
  void CheckEnds(int64_t vocabulary) {
    Read<bool>("eos_token_id", [&](JsonFields& fields) {
      return !fields.Integers("eos_token_id", 0, vocabulary - 1).empty();
    });
  }

 private:
  template <typename Value, typename Get>
  std::optional<Value> Read(std::string_view name, const Get& get) {
    JsonFields fields(json_, path_);
    if (!fields.Has(name)) return std::nullopt;
    const auto value = get(fields);
    if (fields.status().ok()) return static_cast<Value>(value);
    left_out_.emplace_back(fields.status().message());
    return std::nullopt;
  }

  const Json& json_;
  const std::string& path_;
  std::vector<std::string>& left_out_;
};

}  // namespace

absl::StatusOr<GenerationDefaults> GenerationDefaults::Load(const std::string& folder, int64_t vocabulary) {
  GenerationDefaults defaults;
  BATON_ASSIGN_OR_RETURN(const auto file, gguf::OpenIfGguf(folder));
  const std::string path = file.has_value() ? folder : std::string(std::filesystem::path(folder) / kFile);
  Json json;
  if (file.has_value()) {
    BATON_ASSIGN_OR_RETURN(json, GenerationOfGguf(file->document));
  } else {
    const absl::StatusOr<std::string> text = ReadTextFile(path, kMaxBytes);
    if (absl::IsNotFound(text.status())) return defaults;
    BATON_RETURN_IF_ERROR(text.status());
    BATON_ASSIGN_OR_RETURN(json, ParseJson(*text, path));
  }
  BATON_RETURN_IF_ERROR(JsonFields(json, path).status());
  DefaultFields fields(json, path, defaults.left_out);
  defaults.temperature = fields.Number("temperature", {.low = 0});
  defaults.top_p = fields.Number("top_p", {.low = 0, .high = 1, .low_open = true});
  defaults.min_p = fields.Number("min_p", {.low = 0, .high = 1});
  defaults.repetition_penalty = fields.Number("repetition_penalty", {.low = 0, .low_open = true});
  defaults.top_k = fields.Integer("top_k", 0);
  defaults.max_new_tokens = fields.Integer("max_new_tokens", 1);
  defaults.do_sample = fields.Flag("do_sample").value_or(true);
  fields.CheckEnds(vocabulary);
  return defaults;
}

}  // namespace baton::model
