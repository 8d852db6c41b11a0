#include "lab/simulate/fleet_model.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "lab/bench/trace.h"

namespace baton::lab::simulate {
namespace {

using Json = nlohmann::ordered_json;

// Calls visit(name, field, least, most) for each field that is a number.
template <typename Model, typename Visit>
void ForEachNumber(Model& model, Visit visit) {
  visit("prefill_workers", model.prefill_workers, 1.0, 4096.0);
  visit("decode_workers", model.decode_workers, 1.0, 4096.0);
  visit("prefill_base", model.prefill_base, 0.0, 1e3);
  visit("prefill_token", model.prefill_token, 0.0, 1.0);
  visit("prefill_pair", model.prefill_pair, 0.0, 1.0);
  visit("step_base", model.step_base, 1e-6, 1e3);
  visit("step_sequence", model.step_sequence, 0.0, 1e3);
  visit("step_context", model.step_context, 0.0, 1.0);
  visit("link_bandwidth", model.link_bandwidth, 1.0, 1e15);
  visit("link_latency", model.link_latency, 0.0, 1e3);
  visit("link_domains", model.link_domains, 0.0, 4096.0);
  visit("near_bandwidth", model.near_bandwidth, 1.0, 1e15);
  visit("request_overhead", model.request_overhead, 0.0, 1e3);
  visit("kv_bytes_per_token", model.kv_bytes_per_token, 0.0, 1e9);
  visit("block_tokens", model.block_tokens, 1.0, 1e6);
  visit("prefill_blocks", model.prefill_blocks, 1.0, 1e8);
  visit("decode_blocks", model.decode_blocks, 1.0, 1e8);
  visit("disk_bytes", model.disk_bytes, 0.0, 1e15);
  visit("disk_bandwidth", model.disk_bandwidth, 1.0, 1e15);
  visit("disk_latency", model.disk_latency, 0.0, 1e3);
  visit("local_chunk_tokens", model.local_chunk_tokens, 1.0, 1e6);
  visit("local_token_budget", model.local_token_budget, 1.0, 1e6);
  visit("decode_concurrency", model.decode_concurrency, 1.0, 1e6);
  visit("noise", model.noise, 0.0, 2.0);
  visit("stall_every", model.stall_every, 0.0, 1e9);
  visit("stall_seconds", model.stall_seconds, 0.0, 1e6);
  visit("measured", model.measured, 0.0, 1e3);
}

template <typename Visit>
void ForEachList(FleetModel& model, Visit visit) {
  visit("prefill_slowness", model.prefill_slowness, 1e-3);
  visit("prefill_joins", model.prefill_joins, 0.0);
}

}  // namespace

double FleetModel::PrefillSeconds(int64_t uncached, int64_t cached) const {
  const double u = static_cast<double>(uncached);
  return prefill_base + prefill_token * u + prefill_pair * u * (static_cast<double>(cached) + u / 2);
}

double FleetModel::StepSeconds(int64_t batch, int64_t context) const {
  return step_base + step_sequence * static_cast<double>(batch) + step_context * static_cast<double>(context);
}

absl::StatusOr<FleetModel> ParseFleetModel(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Json json, json::Parse<Json>(text));
  if (!json.is_object()) return absl::InvalidArgumentError("a fleet model is a JSON object of numbers");
  FleetModel model;
  absl::Status status;
  std::vector<std::string> known = {"decode_cache", "comment"};
  ForEachNumber(model, [&](const char* name, auto& field, double least, double most) {
    known.push_back(name);
    const auto entry = json.find(name);
    if (entry == json.end() || !status.ok()) return;
    const double value = entry->is_number() ? entry->template get<double>() : -1;
    if (!(value >= least && value <= most)) {
      status =
          absl::InvalidArgumentError(fmt::format("{} must be a number in [{:g}, {:g}]", name, least, most));
      return;
    }
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
  });
  ForEachList(model, [&](const char* name, std::vector<double>& list, double least) {
    known.push_back(name);
    const auto entry = json.find(name);
    if (entry == json.end() || !status.ok()) return;
    bool good = entry->is_array();
    if (good) {
      for (const Json& item : *entry) {
        good = good && item.is_number() && item.get<double>() >= least && item.get<double>() <= 1e6;
        if (good) list.push_back(item.get<double>());
      }
    }
    if (!good) {
      status =
          absl::InvalidArgumentError(fmt::format("{} must be a list of numbers, at least {:g}", name, least));
    }
  });
  if (!status.ok()) return status;
  if (const auto entry = json.find("decode_cache"); entry != json.end()) {
    if (!entry->is_boolean()) return absl::InvalidArgumentError("decode_cache must be true or false");
    model.decode_cache = entry->get<bool>();
  }
  if (bench::kTraceBlockTokens % model.block_tokens != 0) {
    return absl::InvalidArgumentError(fmt::format(
        "block_tokens must divide the {} tokens of a trace's block, as 16 does", bench::kTraceBlockTokens));
  }
  for (const auto& item : json.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      return absl::InvalidArgumentError(fmt::format("\"{}\" is no field of a fleet model", item.key()));
    }
  }
  return model;
}

absl::StatusOr<FleetModel> ReadFleetModel(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(fmt::format("can't read the fleet model {}", path));
  }
  absl::StatusOr<FleetModel> model = ParseFleetModel(text.str());
  if (!model.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(model.status().message())));
  }
  return model;
}

std::string ToJson(const FleetModel& model) {
  Json json = Json::object();
  FleetModel copy = model;
  ForEachNumber(copy, [&](const char* name, auto& field, double, double) { json[name] = field; });
  json["decode_cache"] = model.decode_cache;
  ForEachList(copy, [&](const char* name, std::vector<double>& list, double) {
    if (!list.empty()) json[name] = list;
  });
  return json.dump(2);
}

}  // namespace baton::lab::simulate
