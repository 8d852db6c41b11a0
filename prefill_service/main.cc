// baton-prefill: a prefill worker.
#include <CLI/CLI.hpp>

#include "common/rpc/lifecycle.h"
#include "common/transfer/nccl/nccl.h"
#include "common/worker/process.h"
#include "prefill_service/server.h"

int main(int argc, char** argv) {
  using namespace baton;
  rpc::SkipLockOrderChecks();
  rpc::CatchStopSignals();
  prefill_service::ServerOptions options;
  CLI::App app{"baton-prefill: computes the KV cache of prompts and ships it to decode workers."};
  worker::AddFlags(app, options.worker);
  app.add_option("--max-queued", options.scheduler.max_queued, "Prompts waiting before new ones are refused")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chunk-tokens", options.scheduler.chunk_tokens, "Prompt tokens of one request in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  app.add_option("--slo-ttft", options.scheduler.slo_ttft,
                 "Seconds to the first token, which the queue is ordered by; the same as the routers'")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--token-budget", options.scheduler.token_budget, "Tokens of all requests in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  options.worker.link.open_nccl = transfer::OpenNccl;
  CLI11_PARSE(app, argc, argv);
  return worker::RunProcess<prefill_service::PrefillServer>(
      "prefill", options.worker, [&] { return prefill_service::PrefillServer::Start(options); });
}
