#include "worker/chunk_gate.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "common/tensor/dtype.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace baton::worker {
namespace {

constexpr int64_t kMostBytes = 1 << 16;

// Reads members of an object; the first fault is kept.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  void Text(const char* name, std::string* value) {
    if (const auto* found = Find(name, &nlohmann::json::is_string)) *value = found->get<std::string>();
  }
  void Number(const char* name, double* value) {
    if (const auto* found = Find(name, &nlohmann::json::is_number)) *value = found->get<double>();
  }
  void Count(const char* name, int64_t* value) {
    if (const auto* found = Find(name, &nlohmann::json::is_number_unsigned)) *value = found->get<int64_t>();
  }
  const nlohmann::json& Object(const char* name) {
    static const nlohmann::json kEmpty = nlohmann::json::object();
    const auto* found = Find(name, &nlohmann::json::is_object);
    return found != nullptr ? *found : kEmpty;
  }
  const std::string& fault() const { return fault_; }

 private:
  const nlohmann::json* Find(const char* name, bool (nlohmann::json::*is)() const noexcept) {
    const auto found = object_.find(name);
    if (found != object_.end() && ((*found).*is)()) return &*found;
    if (fault_.empty()) fault_ = fmt::format("\"{}\" is missing or of another type", name);
    return nullptr;
  }

  const nlohmann::json& object_;
  std::string fault_;
};

absl::Status Refused(const std::string& why) {
  return absl::FailedPreconditionError(
      fmt::format("gate of chunk reuse: {}; run `baton eval chunk-reuse`", why));
}

}  // namespace

ChunkGate ChunkGate::For(const protocol::Fingerprint& fingerprint) {
  ChunkGate gate;
  gate.config = absl::BytesToHexString(fingerprint.config);
  gate.weights = absl::BytesToHexString(fingerprint.weights);
  gate.key_dtype = tensor::Name(fingerprint.kv.key_dtype);
  gate.value_dtype = tensor::Name(fingerprint.kv.value_dtype);
  return gate;
}

absl::StatusOr<ChunkGate> ChunkGate::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMostBytes), '\0');
  file.read(text.data(), kMostBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  const auto invalid = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format("--chunk-reuse {}: {}", path, why));
  };
  if (text.empty()) return invalid("can't be read, or is empty; `baton eval chunk-reuse` writes it");
  const auto json = json::Parse<nlohmann::json>(text, {.depth = 4, .values = 100});
  if (!json.ok()) return invalid(std::string(json.status().message()));
  if (!json->is_object()) return invalid("not a JSON object");
  ChunkGate gate;
  Fields fields(*json);
  fields.Text("mode", &gate.mode);
  fields.Text("config", &gate.config);
  fields.Text("weights", &gate.weights);
  fields.Text("key_dtype", &gate.key_dtype);
  fields.Text("value_dtype", &gate.value_dtype);
  Fields limits(fields.Object("limits"));
  limits.Number("kl", &gate.limits.kl);
  limits.Number("exact_match", &gate.limits.exact_match);
  limits.Number("recall_loss", &gate.limits.recall_loss);
  Fields measured(fields.Object("measured"));
  measured.Count("questions", &gate.measured.questions);
  measured.Number("kl", &gate.measured.kl);
  measured.Number("exact_match", &gate.measured.exact_match);
  measured.Number("recall_full", &gate.measured.recall_full);
  measured.Number("recall_reused", &gate.measured.recall_reused);
  for (const Fields* some : {&fields, &limits, &measured}) {
    if (!some->fault().empty()) return invalid(some->fault());
  }
  return gate;
}

std::string ChunkGate::ToJson() const {
  return nlohmann::ordered_json{
             {"mode", mode},
             {"config", config},
             {"weights", weights},
             {"key_dtype", key_dtype},
             {"value_dtype", value_dtype},
             {"limits",
              {{"kl", limits.kl}, {"exact_match", limits.exact_match}, {"recall_loss", limits.recall_loss}}},
             {"measured",
              {{"questions", measured.questions},
               {"kl", measured.kl},
               {"exact_match", measured.exact_match},
               {"recall_full", measured.recall_full},
               {"recall_reused", measured.recall_reused}}}}
             .dump(1) +
         "\n";
}

absl::Status ChunkGate::CheckLimits() const {
  if (measured.questions < 1) return Refused("no question was asked");
  // Written so that NaN is refused.
  if (!(measured.kl <= limits.kl)) {
    return Refused(fmt::format("a divergence of {:.4f}, the limit is {:.4f}", measured.kl, limits.kl));
  }
  if (!(measured.exact_match >= limits.exact_match)) {
    return Refused(fmt::format("{:.3f} of the answers are the same, the limit is {:.3f}",
                               measured.exact_match, limits.exact_match));
  }
  const double loss = measured.recall_full - measured.recall_reused;
  if (!(loss <= limits.recall_loss)) {
    return Refused(fmt::format("{:.3f} less of the questions are answered rightly, the limit is {:.3f}", loss,
                               limits.recall_loss));
  }
  return absl::OkStatus();
}

absl::Status ChunkGate::Check(const protocol::Fingerprint& fingerprint) const {
  const ChunkGate here = For(fingerprint);
  if (mode != here.mode) return Refused(fmt::format("it is for {}, this worker has {}", mode, here.mode));
  if (config != here.config) return Refused("it is for another model: config.json differs");
  if (weights != here.weights)
    return Refused("it is for another model, or another --weights: weights differ");
  if (key_dtype != here.key_dtype || value_dtype != here.value_dtype) {
    return Refused(fmt::format("it is for KV of {} and {}, this worker has {} and {}", key_dtype, value_dtype,
                               here.key_dtype, here.value_dtype));
  }
  return CheckLimits();
}

absl::Status CheckChunkReuse(const std::string& how, const engine::Engine& engine) {
  BATON_RETURN_IF_ERROR(engine.CheckLands());
  if (how == kUncheckedReuse) {
    spdlog::warn(
        "chunks are reused though nobody has measured what this model loses by it: see `baton eval "
        "chunk-reuse`");
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(const ChunkGate gate, ChunkGate::Read(how));
  return gate.Check(engine.fingerprint());
}

}  // namespace baton::worker
