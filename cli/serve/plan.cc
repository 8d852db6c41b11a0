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

constexpr int64_t kModeratorKvBytes = int64_t{64} << 20;

absl::StatusOr<std::string> FindBinary(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(fmt::format(
      "{} is not in {}, where baton itself is: build it, or run the baton that is beside it", name, folder));
}

// What `name` announced as its `endpoint` before, so that a restart comes back where others look for it.
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

// Where a worker is: its place among those of its role and among all.
struct Place {
  std::string name;
  bool decode = false;
  size_t of_role = 0;
  int of_all = 0;
};

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

Arguments WorkerArguments(const ServePlan& plan, const Place& place, const AddressBook& book) {
  const std::string& name = place.name;
  const bool decode = place.decode;
  Arguments arguments = {"--exit-with-parent"};
  const auto set = [&](const char* flag, const std::string& value) {
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  set("--model", plan.model_folder);
  set("--model-name", plan.model_name);
  set("--worker-id", plan.worker_prefix.empty() ? name : fmt::format("{}-{}", plan.worker_prefix, name));
  set("--listen", ListenAt(book, name, "grpc", plan.worker_listen, place.of_all));
  set("--metrics", ListenAt(book, name, "metrics", plan.worker_metrics, place.of_all));
  const auto& devices = decode ? plan.decode_devices : plan.prefill_devices;
  if (!devices.empty()) set("--devices", command_line::NumbersText(devices.at(place.of_role)));
  set("--log-level", plan.log_level);
  AddSecurity(plan.security, &arguments);
  const int share = decode ? plan.cores.decode : plan.cores.prefill;
  set("--threads", std::to_string(plan.threads > 0 ? plan.threads : share));
  if (!plan.core_shares.empty()) set("--share-cores", plan.core_shares.at(static_cast<size_t>(place.of_all)));
  if (plan.kv_bytes > 0) set("--kv-memory", std::to_string(plan.kv_bytes));
  if (!plan.kv_disk.empty()) set("--kv-disk", fmt::format("{}/{}", plan.kv_disk, name));
  if (plan.chunk_tokens > 0) set("--chunk-tokens", std::to_string(plan.chunk_tokens));
  if (plan.token_budget > 0) set("--token-budget", std::to_string(plan.token_budget));
  if (!decode && plan.slo_ttft_seconds > 0) set("--slo-ttft", fmt::format("{}", plan.slo_ttft_seconds));
  if (decode && plan.slo_tpot_seconds > 0) set("--slo-tpot", fmt::format("{}", plan.slo_tpot_seconds));
  if (decode && plan.local_prefill_tokens >= 0) {
    set("--local-prefill-tokens", std::to_string(plan.local_prefill_tokens));
  }
  if (decode && !plan.speculation.empty()) set("--speculation", plan.speculation);
  if (decode && !plan.draft_model.empty()) set("--draft-model", plan.draft_model);
  if (decode && plan.self_draft) arguments.emplace_back("--self-draft");
  if (!decode && plan.tail_share >= 0) set("--tail-share", fmt::format("{}", plan.tail_share));
  if (decode && plan.max_running > 0) set("--max-running", std::to_string(plan.max_running));
  arguments.insert(arguments.end(), plan.worker_flags.begin(), plan.worker_flags.end());
  const auto& own = decode ? plan.decode_flags : plan.prefill_flags;
  arguments.insert(arguments.end(), own.begin(), own.end());
  return arguments;
}

// The classifier's worker: one thread and little memory, for texts of a few hundred tokens.
Arguments ModeratorArguments(const ServePlan& plan, int place, const AddressBook& book) {
  Arguments arguments = {"--exit-with-parent"};
  const auto set = [&](const char* flag, const std::string& value) {
    arguments.emplace_back(flag);
    arguments.push_back(value);
  };
  set("--model", plan.moderation_model);
  set("--worker-id",
      plan.worker_prefix.empty() ? kModeratorName : fmt::format("{}-{}", plan.worker_prefix, kModeratorName));
  set("--listen", ListenAt(book, kModeratorName, "grpc", plan.worker_listen, place));
  set("--metrics", ListenAt(book, kModeratorName, "metrics", plan.worker_metrics, place));
  set("--threads", "1");
  set("--kv-memory", std::to_string(kModeratorKvBytes));
  set("--log-level", plan.log_level);
  AddSecurity(plan.security, &arguments);
  return arguments;
}

// One that can't be written is missed by the router, which says so.
void WriteModerationFile(const ServePlan& plan, const AddressBook& book) {
  const nlohmann::json models = {{"models",
                                  {{{"folder", plan.moderation_model},
                                    {"classifier", "auto"},
                                    {"decode", {Known(book, kModeratorName, "grpc", "")}}}}}};
  std::ofstream(plan.moderation_file) << models;
}

std::string Addresses(const AddressBook& book, const std::vector<std::string>& names) {
  std::vector<std::string> addresses;
  for (const std::string& name : names) addresses.push_back(Known(book, name, "grpc", ""));
  return absl::StrJoin(addresses, ",");
}

}  // namespace

absl::StatusOr<std::vector<ProcessSpec>> MakeSpecs(const ServePlan& plan, const std::string& binary_folder) {
  std::string router;
  if (plan.router) {
    BATON_ASSIGN_OR_RETURN(router, FindBinary(binary_folder, "baton-router"));
  }
  const bool moderates = plan.router && !plan.moderation_model.empty();
  const int last = plan.prefill + plan.decode - 1 + (moderates ? 1 : 0);
  BATON_RETURN_IF_ERROR(PortAfter("--worker-listen", plan.worker_listen, last).status());
  BATON_RETURN_IF_ERROR(PortAfter("--worker-metrics", plan.worker_metrics, last).status());
  BATON_ASSIGN_OR_RETURN(const std::string prefill, FindBinary(binary_folder, "baton-prefill"));
  BATON_ASSIGN_OR_RETURN(const std::string decode, FindBinary(binary_folder, "baton-decode"));
  std::vector<ProcessSpec> specs;
  std::vector<std::string> prefill_names;
  std::vector<std::string> decode_names;
  const auto add_worker = [&](std::string name, const std::string& program, bool is_decode) {
    std::vector<std::string>& names = is_decode ? decode_names : prefill_names;
    const Place place{name, is_decode, names.size(), static_cast<int>(specs.size())};
    names.push_back(name);
    specs.push_back({name, program,
                     [plan, place](const AddressBook& book) { return WorkerArguments(plan, place, book); },
                     /*stage=*/0,
                     // Without prefill workers, decode workers read prompts themselves.
                     /*vital_group=*/is_decode ? "decode" : ""});
  };
  for (int i = 0; i < plan.prefill; ++i) add_worker(fmt::format("prefill-{}", i), prefill, false);
  for (int i = 0; i < plan.decode; ++i) add_worker(fmt::format("decode-{}", i), decode, true);
  if (!plan.router) return specs;
  if (moderates) {
    specs.push_back({kModeratorName, decode,
                     [plan, place = static_cast<int>(specs.size())](const AddressBook& book) {
                       return ModeratorArguments(plan, place, book);
                     },
                     /*stage=*/0, /*vital_group=*/""});
  }
  specs.push_back({kRouterName, router,
                   [plan, prefill_names, decode_names](const AddressBook& book) {
                     Arguments arguments = {"--exit-with-parent"};
                     const auto set = [&](const char* flag, const std::string& value) {
                       arguments.emplace_back(flag);
                       arguments.push_back(value);
                     };
                     set("--model", plan.model_folder);
                     set("--model-name", plan.model_name);
                     if (!plan.output_format.empty()) set("--output-format", plan.output_format);
                     set("--decode", Addresses(book, decode_names));
                     if (!plan.moderation_model.empty()) {
                       WriteModerationFile(plan, book);
                       set("--models", plan.moderation_file);
                     }
                     if (!prefill_names.empty()) set("--prefill", Addresses(book, prefill_names));
                     set("--listen", Known(book, kRouterName, "grpc", plan.listen));
                     set("--metrics", Known(book, kRouterName, "metrics", plan.metrics));
                     set("--default-ttft-deadline", fmt::format("{}", plan.default_ttft_seconds));
                     if (plan.tail_share >= 0) set("--tail-share", fmt::format("{}", plan.tail_share));
                     if (plan.slo_ttft_seconds > 0) {
                       set("--slo-ttft", fmt::format("{}", plan.slo_ttft_seconds));
                     }
                     if (plan.slo_tpot_seconds > 0) {
                       set("--slo-tpot", fmt::format("{}", plan.slo_tpot_seconds));
                     }
                     set("--log-level", plan.log_level);
                     AddSecurity(plan.security, &arguments);
                     if (!plan.security.client_ca.empty()) set("--tls-client-ca", plan.security.client_ca);
                     if (!plan.tenants.empty()) set("--tenants", plan.tenants);
                     if (!plan.prices.empty()) set("--prices", plan.prices);
                     if (plan.vllm_metrics) arguments.emplace_back("--vllm-metrics");
                     if (!plan.ledger.empty()) set("--ledger", plan.ledger);
                     if (!plan.audit_log.empty()) set("--audit-log", plan.audit_log);
                     if (!plan.otlp.empty()) {
                       set("--otlp", plan.otlp);
                       set("--trace-sample", fmt::format("{}", plan.trace_sample));
                     }
                     return arguments;
                   },
                   /*stage=*/1,
                   /*vital_group=*/kRouterName});
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
