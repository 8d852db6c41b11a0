#include "cli/relay_in_process.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/serve/cores.h"
#include "common/base/status.h"
#include "common/rpc/lifecycle.h"
#include "decode_service/server.h"
#include "engine/device/core_table.h"
#include "engine/device/thread_pool.h"
#include "prefill_service/server.h"
#include "router/router.h"

namespace baton::cli {
namespace {

// Ends in the reverse order: the router first.
struct Relay {
  std::unique_ptr<prefill_service::PrefillServer> prefill;
  std::unique_ptr<decode_service::DecodeServer> decode;
  std::unique_ptr<router::Router> router;
};

}  // namespace

absl::StatusOr<LocalRelay> StartRelayInProcess(const LocalRelayOptions& options) {
  BATON_RETURN_IF_ERROR(rpc::SetUpLogging("relay", "warn"));
  worker::Options worker;
  worker.engine.model_folder = options.model_folder;
  worker.engine.backend = options.backend;
  for (const auto& [name, precision] : model::WeightPrecisions()) {
    if (name == options.weights) worker.engine.weights = precision;
  }
  worker.engine.expert_file = options.expert_file;
  worker.engine.expert_memory = options.expert_memory;
  worker.metrics_listen = "";  // its address would not be known
  if (options.kv_bytes > 0) worker.engine.kv_bytes = options.kv_bytes;
  auto relay = std::make_shared<Relay>();
  prefill_service::ServerOptions prefill{.worker = worker};
  prefill.worker.worker_id = "prefill-0";
  decode_service::ServerOptions decode{.worker = worker};
  decode.worker.worker_id = "decode-0";
  for (worker::Options* one : {&prefill.worker, &decode.worker}) {
    if (!options.progress) break;
    one->engine.weights_progress = [progress = options.progress, name = one->worker_id](
                                       int64_t done, int64_t all) { progress(name, done, all); };
  }
  // Two engines share the cores.
  const int cores = std::min(device::UsableCores(), device::CoreTable::kMostCores);
  const ThreadShares shares = SplitCores(cores, 1, 1);
  prefill.worker.engine.threads = options.threads > 0 ? options.threads : shares.prefill;
  decode.worker.engine.threads = options.threads > 0 ? options.threads : shares.decode;
  std::optional<device::CoreTable> table;  // until both have joined
  if (options.threads == 0) {
    BATON_ASSIGN_OR_RETURN(device::CoreTable made, device::CoreTable::Create(cores, HomesOf(cores, 1, 1)));
    table.emplace(std::move(made));
    prefill.worker.share_cores = table->NameOf(0);
    decode.worker.share_cores = table->NameOf(1);
  }
  BATON_ASSIGN_OR_RETURN(relay->prefill, prefill_service::PrefillServer::Start(std::move(prefill)));
  BATON_ASSIGN_OR_RETURN(relay->decode, decode_service::DecodeServer::Start(std::move(decode)));
  router::RouterOptions router;
  router.models = {{.folder = options.model_folder}};
  router.prefill = {relay->prefill->address()};
  router.decode = {relay->decode->address()};
  BATON_ASSIGN_OR_RETURN(relay->router, router::Router::Start(router));
  return LocalRelay{.address = relay->router->address(), .keep = relay};
}

}  // namespace baton::cli
