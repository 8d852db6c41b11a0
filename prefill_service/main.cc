// baton-prefill: a prefill worker.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/rpc/lifecycle.h"
#include "prefill_service/server.h"
#include "spdlog/spdlog.h"

int main(int argc, char** argv) {
  using namespace baton;
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
  app.add_option("--token-budget", options.scheduler.token_budget, "Tokens of all requests in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (absl::Status logging = rpc::SetUpLogging("prefill", options.worker.log_level); !logging.ok()) {
    std::fprintf(stderr, "baton-prefill: %s\n", std::string(logging.message()).c_str());
    return 2;
  }
  const worker::Options worker = options.worker;
  auto server = prefill_service::PrefillServer::Start(std::move(options));
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return 1;
  }
  rpc::AnnounceReady({{"grpc", (*server)->address()}, {"metrics", (*server)->metrics_address()}});
  rpc::WaitForStop(worker.exit_with_parent);
  spdlog::info("draining for up to {} s", worker.drain_grace);
  (*server)->Drain(absl::Seconds(worker.drain_grace));
  return 0;
}
