#include "lab/plan/profile.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/status.h"
#include "common/json/strict_json.h"

namespace baton::lab::plan {

double Profile::PrefillSeconds(double uncached, double cached) const {
  return prefill_base + prefill_token * uncached + prefill_pair * uncached * (cached + uncached / 2);
}

double Profile::StepSeconds(double batch, double context) const {
  return step_base + step_sequence * batch + step_context * context;
}

absl::StatusOr<Profile> ParseProfile(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const auto json, json::Parse<nlohmann::json>(text));
  if (!json.is_object()) return absl::InvalidArgumentError("a profile is a JSON object of numbers");
  Profile profile;
  absl::Status status;
  const auto read = [&](const char* name, auto& field, bool positive) {
    if (!status.ok()) return;
    const auto entry = json.find(name);
    const double value = entry != json.end() && entry->is_number() ? entry->template get<double>() : -1;
    if (value < 0 || (positive && value == 0)) {
      status = absl::InvalidArgumentError(
          fmt::format("{} must be a number {} 0; `baton bench --profile FILE` measures it", name,
                      positive ? "above" : "of at least"));
      return;
    }
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
  };
  read("prefill_base", profile.prefill_base, false);
  read("prefill_token", profile.prefill_token, false);
  read("prefill_pair", profile.prefill_pair, false);
  read("step_base", profile.step_base, true);
  read("step_sequence", profile.step_sequence, false);
  read("step_context", profile.step_context, false);
  if (json.contains("link_bandwidth")) read("link_bandwidth", profile.link_bandwidth.emplace(), true);
  if (json.contains("link_latency")) read("link_latency", profile.link_latency, false);
  read("kv_bytes_per_token", profile.kv_bytes_per_token, true);
  if (!status.ok()) return status;
  if (profile.prefill_token <= 0 && profile.prefill_pair <= 0) {
    return absl::InvalidArgumentError(
        "prefill_token and prefill_pair are both 0, as if prompts of any length took the same time: measure "
        "again with prompts of different lengths (baton bench --profile FILE --requests 200 "
        "--prompt-tokens uniform:16:1500)");
  }
  if (profile.step_sequence <= 0 && profile.step_context <= 0) {
    return absl::InvalidArgumentError(
        "step_sequence and step_context are both 0, as if a step of any number of answers took the same "
        "time: measure again with more answers at a time (baton bench --profile FILE --requests 200 "
        "--concurrency 8 --prompt-tokens uniform:16:1500)");
  }
  return profile;
}

absl::StatusOr<Profile> ReadProfile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(
        fmt::format("can't read the profile {}: `baton bench --profile {}` measures one", path, path));
  }
  absl::StatusOr<Profile> profile = ParseProfile(text.str());
  if (!profile.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(profile.status().message())));
  }
  return profile;
}

}  // namespace baton::lab::plan
