#include "cli/serve/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace baton::cli {
namespace {

using Arguments = std::vector<std::string>;

absl::StatusOr<std::string> FindBinary(const std::string& folder, const std::string& name) {
  std::string path = folder + "/" + name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      fmt::format("{} is not in {}, where baton itself lies: build it, or run the baton that lies beside it",
                  name, folder));
}

// What `name` announced as its `endpoint` before, so that a restart comes back where others look for it.
std::string Known(const AddressBook& book, const std::string& name, const std::string& endpoint,
                  const std::string& otherwise) {
  const auto entry = book.find(name);
  if (entry == book.end()) return otherwise;
  const auto address = entry->second.find(endpoint);
  return address == entry->second.end() ? otherwise : address->second;
}

Arguments WorkerArguments(const ServePlan& plan, const std::string& name, bool decode,
                          const AddressBook& book) {
  const std::string any = plan.worker_host + ":0";
  Arguments arguments = {"--model",           plan.model_folder,
                         "--listen",          Known(book, name, "grpc", any),
                         "--metrics",         Known(book, name, "metrics", any),
                         "--backend",         plan.backend,
                         "--log-level",       plan.log_level,
                         "--exit-with-parent"};
  const auto add = [&](const char* flag, int64_t value) {
    arguments.emplace_back(flag);
    arguments.push_back(fmt::format("{}", value));
  };
  if (plan.threads > 0) add("--threads", plan.threads);
  if (plan.kv_bytes > 0) add("--kv-memory", plan.kv_bytes);
  if (plan.chunk_tokens > 0) add("--chunk-tokens", plan.chunk_tokens);
  if (plan.token_budget > 0) add("--token-budget", plan.token_budget);
  if (decode && plan.local_prefill_tokens >= 0) add("--local-prefill-tokens", plan.local_prefill_tokens);
  if (decode && plan.max_running > 0) add("--max-running", plan.max_running);
  return arguments;
}

std::string Addresses(const AddressBook& book, const std::vector<std::string>& names) {
  std::vector<std::string> addresses;
  for (const std::string& name : names) addresses.push_back(Known(book, name, "grpc", ""));
  return absl::StrJoin(addresses, ",");
}

}  // namespace

absl::StatusOr<std::vector<ProcessSpec>> MakeSpecs(const ServePlan& plan, const std::string& binary_folder) {
  BATON_ASSIGN_OR_RETURN(const std::string router, FindBinary(binary_folder, "baton-router"));
  BATON_ASSIGN_OR_RETURN(const std::string prefill, FindBinary(binary_folder, "baton-prefill"));
  BATON_ASSIGN_OR_RETURN(const std::string decode, FindBinary(binary_folder, "baton-decode"));
  std::vector<ProcessSpec> specs;
  std::vector<std::string> prefill_names;
  std::vector<std::string> decode_names;
  const auto add_worker = [&](std::string name, const std::string& program, bool is_decode) {
    (is_decode ? decode_names : prefill_names).push_back(name);
    specs.push_back({name, program,
                     [plan, name, is_decode](const AddressBook& book) {
                       return WorkerArguments(plan, name, is_decode, book);
                     },
                     /*stage=*/0});
  };
  for (int i = 0; i < plan.prefill; ++i) add_worker(fmt::format("prefill-{}", i), prefill, false);
  for (int i = 0; i < plan.decode; ++i) add_worker(fmt::format("decode-{}", i), decode, true);
  specs.push_back(
      {kRouterName, router,
       [plan, prefill_names, decode_names](const AddressBook& book) {
         Arguments arguments = {"--model",       plan.model_folder, "--model-name",
                                plan.model_name, "--decode",        Addresses(book, decode_names)};
         if (!prefill_names.empty()) {
           arguments.insert(arguments.end(), {"--prefill", Addresses(book, prefill_names)});
         }
         arguments.insert(arguments.end(), {"--listen", Known(book, kRouterName, "grpc", plan.listen),
                                            "--metrics", Known(book, kRouterName, "metrics", plan.metrics),
                                            "--log-level", plan.log_level, "--exit-with-parent"});
         return arguments;
       },
       /*stage=*/1});
  return specs;
}

}  // namespace baton::cli
