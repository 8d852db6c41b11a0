#include "cli/serve/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/command_line/option_types.h"
#include "nlohmann/json.hpp"

namespace baton::cli {
namespace {

using Arguments = std::vector<std::string>;

absl::StatusOr<std::string> FindBinary(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(fmt::format(
      "{} is not in {}, where baton itself is: build it, or run the baton that is beside it", name, folder));
}

// The address that `name` last announced as its `endpoint`, so that a restart keeps it; else `otherwise`.
std::string Known(const AddressBook& book, const std::string& name, const std::string& endpoint,
                  const std::string& otherwise) {
  const auto entry = book.find(name);
  if (entry == book.end()) return otherwise;
  const auto address = entry->second.find(endpoint);
  return address == entry->second.end() ? otherwise : address->second;
}

void AddSecurity(const rpc::SecurityOptions& security, Arguments* arguments) {
  const std::pair<const char*, const std::string&> flags[] = {{"--tls-cert", security.cert},
                                                              {"--tls-key", security.key},
                                                              {"--tls-ca", security.ca},
                                                              {"--tls-peer-name", security.peer_name},
                                                              {"--fleet-key-file", security.fleet_key_file}};
  for (const auto& [flag, value] : flags) {
    if (value.empty()) continue;
    arguments->emplace_back(flag);
    arguments->push_back(value);
  }
}

// `first` with a port that is `more` higher; port 0 stays.
absl::StatusOr<std::string> PortAfter(const std::string& flag, const std::string& first, int more) {
  const size_t colon = first.rfind(':');
  int port = -1;
  if (colon == std::string::npos || !absl::SimpleAtoi(first.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(fmt::format("{} {}: use host:port", flag, first));
  }
  if (port == 0) return first;
  if (port + more > 65535) {
    return absl::InvalidArgumentError(
        fmt::format("{} {}: worker {} would need port {}: begin lower", flag, first, more, port + more));
  }
  return fmt::format("{}:{}", first.substr(0, colon), port + more);
}

// Where a worker's endpoint is to be: at its port, or where it was before if the system chose that.
std::string ListenAt(const AddressBook& book, const std::string& name, const std::string& endpoint,
                     const std::string& first, int more) {
  const std::string at = *PortAfter(endpoint, first, more);  // MakeSpecs has seen that the port exists
  return at.ends_with(":0") ? Known(book, name, endpoint, at) : at;
}

// The flags of all workers, by the command line.
void SetCommonFlags(const ServePlan& plan, const ServedWorker& worker, FlagList* flags) {
  const bool decode = worker.decode;
  const auto number = [&](const char* flag, auto value) { flags->Set(flag, fmt::format("{}", value)); };
  if (plan.threads > 0) number("--threads", plan.threads);
  if (plan.kv_bytes > 0) number("--kv-memory", plan.kv_bytes);
  if (!plan.kv_disk.empty()) flags->Set("--kv-disk", fmt::format("{}/{}", plan.kv_disk, worker.name));
  if (plan.chunk_tokens > 0) number("--chunk-tokens", plan.chunk_tokens);
  if (plan.token_budget > 0) number("--token-budget", plan.token_budget);
  if (decode && plan.local_prefill_tokens >= 0) number("--local-prefill-tokens", plan.local_prefill_tokens);
  if (decode && !plan.speculation.empty()) flags->Set("--speculation", plan.speculation);
  if (decode && !plan.draft_model.empty()) flags->Set("--draft-model", plan.draft_model);
  if (decode && plan.self_draft) flags->Set("--self-draft");
  if (decode && plan.max_running > 0) number("--max-running", plan.max_running);
  flags->Add(plan.worker_flags);
  flags->Add(decode ? plan.decode_flags : plan.prefill_flags);
}

// `place`: among all workers.
Arguments WorkerArguments(const ServePlan& plan, const ServedWorker& worker, int place,
                          const AddressBook& book) {
  const ServedModel& model = plan.models[worker.model];
  const std::string& name = worker.name;
  Arguments arguments = {"--exit-with-parent"};
  const auto set = [&](const char* flag, const std::string& value) {
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  set("--model", model.folder);
  set("--model-name", model.name);
  set("--worker-id", plan.worker_prefix.empty() ? name : fmt::format("{}-{}", plan.worker_prefix, name));
  set("--listen", ListenAt(book, name, "grpc", plan.worker_listen, place));
  set("--metrics", ListenAt(book, name, "metrics", plan.worker_metrics, place));
  const auto& devices = worker.decode ? model.decode_devices : model.prefill_devices;
  if (!devices.empty()) set("--devices", command_line::NumbersText(devices.at(worker.of_role)));
  AddSecurity(plan.security, &arguments);
  const auto share = plan.core_shares.find(name);
  if (share != plan.core_shares.end()) set("--share-cores", share->second);
  FlagList flags = FlagsOf(plan, worker);
  if (!flags.Value("--threads").has_value())
    flags.Set("--threads", fmt::format("{}", worker.decode ? plan.cores.decode : plan.cores.prefill));
  const Arguments own = flags.Arguments();
  arguments.insert(arguments.end(), own.begin(), own.end());
  return arguments;
}

std::vector<std::string> AddressesOf(const ServePlan& plan, size_t model, bool decode,
                                     const AddressBook& book) {
  std::vector<std::string> addresses;
  for (const ServedWorker& worker : WorkersOf(plan.models)) {
    if (worker.model == model && worker.decode == decode)
      addresses.push_back(Known(book, worker.name, "grpc", ""));
  }
  return addresses;
}

// The router misses a file that can't be written, and says so.
void WriteModelsFile(const ServePlan& plan, const AddressBook& book) {
  nlohmann::json file = {{"models", nlohmann::json::array()}};
  for (size_t i = 0; i < plan.models.size(); ++i) {
    const ServedModel& model = plan.models[i];
    if (model.entry.is_null()) continue;
    nlohmann::json entry = model.entry;
    entry["name"] = model.name;
    const size_t owner = model.same_as.value_or(i);
    // The router's flags have the addresses of the first model's workers.
    if (!plan.models[owner].entry.is_null()) {
      entry["decode"] = AddressesOf(plan, owner, /*decode=*/true, book);
      entry["prefill"] = AddressesOf(plan, owner, /*decode=*/false, book);
    }
    file["models"].push_back(std::move(entry));
  }
  if (!plan.moderation.is_null()) file["moderation"] = plan.moderation;
  std::ofstream(plan.models_file) << file;
}

Arguments RouterArguments(const ServePlan& plan, const AddressBook& book) {
  Arguments arguments = {"--exit-with-parent"};
  const auto set = [&](const char* flag, const std::string& value) {
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  const auto set_if = [&](const char* flag, const std::string& value) {
    if (!value.empty()) set(flag, value);
  };
  const ServedModel& first = plan.models.front();
  if (first.entry.is_null()) {
    set("--model", first.folder);
    set("--model-name", first.name);
    set_if("--output-format", plan.output_format);
    set("--decode", absl::StrJoin(AddressesOf(plan, 0, /*decode=*/true, book), ","));
    set_if("--prefill", absl::StrJoin(AddressesOf(plan, 0, /*decode=*/false, book), ","));
  }
  if (NeedsModelsFile(plan)) {
    WriteModelsFile(plan, book);
    set("--models", plan.models_file);
  }
  set("--listen", Known(book, kRouterName, "grpc", plan.listen));
  set("--metrics", Known(book, kRouterName, "metrics", plan.metrics));
  set("--default-ttft-deadline", fmt::format("{}", plan.default_ttft_seconds));
  if (plan.tail_share >= 0) set("--tail-share", fmt::format("{}", plan.tail_share));
  if (plan.slo_ttft_seconds > 0) set("--slo-ttft", fmt::format("{}", plan.slo_ttft_seconds));
  if (plan.slo_tpot_seconds > 0) set("--slo-tpot", fmt::format("{}", plan.slo_tpot_seconds));
  set("--log-level", plan.log_level);
  set("--drain-seconds", fmt::format("{}", plan.drain_seconds));
  AddSecurity(plan.security, &arguments);
  set_if("--tls-client-ca", plan.security.client_ca);
  set_if("--tenants", plan.tenants);
  set_if("--prices", plan.prices);
  if (plan.vllm_metrics) arguments.emplace_back("--vllm-metrics");
  set_if("--ledger", plan.ledger);
  set_if("--audit-log", plan.audit_log);
  if (!plan.otlp.empty()) {
    set("--otlp", plan.otlp);
    set("--trace-sample", fmt::format("{}", plan.trace_sample));
  }
  return arguments;
}

}  // namespace

FlagList FlagsOf(const ServePlan& plan, const ServedWorker& worker) {
  const ServedModel& model = plan.models[worker.model];
  FlagList flags;
  flags.Set("--log-level", plan.log_level);
  flags.Set("--drain-seconds", fmt::format("{}", plan.drain_seconds));
  if (model.common_flags) SetCommonFlags(plan, worker, &flags);
  flags.Add(model.flags);
  flags.Add(worker.decode ? model.decode_flags : model.prefill_flags);
  return flags;
}

bool NeedsModelsFile(const ServePlan& plan) {
  return plan.models.size() > 1 || !plan.models.front().entry.is_null();
}

absl::StatusOr<std::vector<ProcessSpec>> MakeSpecs(const ServePlan& plan, const std::string& binary_folder) {
  std::string router;
  if (plan.router) {
    BATON_ASSIGN_OR_RETURN(router, FindBinary(binary_folder, "baton-router"));
  }
  const std::vector<ServedWorker> workers = WorkersOf(plan.models);
  const int last = static_cast<int>(workers.size()) - 1;
  BATON_RETURN_IF_ERROR(PortAfter("--worker-listen", plan.worker_listen, last).status());
  BATON_RETURN_IF_ERROR(PortAfter("--worker-metrics", plan.worker_metrics, last).status());
  BATON_ASSIGN_OR_RETURN(const std::string prefill, FindBinary(binary_folder, "baton-prefill"));
  BATON_ASSIGN_OR_RETURN(const std::string decode, FindBinary(binary_folder, "baton-decode"));
  std::vector<ProcessSpec> specs;
  for (const ServedWorker& worker : workers) {
    // Without prefill workers, decode workers read prompts themselves; without a classifier, answers are
    // refused or not judged, as the requests say.
    const bool vital = worker.decode && !plan.models[worker.model].classifier;
    specs.push_back({worker.name, worker.decode ? decode : prefill,
                     [plan, worker, place = static_cast<int>(specs.size())](const AddressBook& book) {
                       return WorkerArguments(plan, worker, place, book);
                     },
                     /*stage=*/0, /*vital_group=*/vital ? "decode" : ""});
  }
  if (!plan.router) return specs;
  specs.push_back({kRouterName, router,
                   [plan](const AddressBook& book) { return RouterArguments(plan, book); },
                   /*stage=*/1, /*vital_group=*/kRouterName});
  if (plan.http.empty()) return specs;
  BATON_ASSIGN_OR_RETURN(const std::string gateway, FindBinary(binary_folder, "baton-gateway"));
  specs.push_back({kGatewayName, gateway,
                   [plan](const AddressBook& book) {
                     Arguments arguments = {"--exit-with-parent", "--page", "--router",
                                            Known(book, kRouterName, "grpc", "")};
                     const auto set = [&](const char* flag, const std::string& value) {
                       if (value.empty()) return;
                       arguments.emplace_back(flag);
                       arguments.push_back(value);
                     };
                     set("--listen", Known(book, kGatewayName, "http", plan.http));
                     for (const std::string& origin : plan.cors_origins) set("--cors-origin", origin);
                     set("--metrics", Known(book, kGatewayName, "metrics", "127.0.0.1:0"));
                     set("--log-level", plan.log_level);
                     set("--drain-seconds", fmt::format("{}", plan.drain_seconds));
                     // The router is met as its other clients meet it.
                     set("--tls-ca", plan.security.ca);
                     // And clients meet both alike.
                     set("--tls-cert", plan.security.cert);
                     set("--tls-key", plan.security.key);
                     set("--tls-server-name", plan.security.peer_name);
                     return arguments;
                   },
                   /*stage=*/2,
                   /*vital_group=*/""});  // gRPC is served without it
  return specs;
}

}  // namespace baton::cli
