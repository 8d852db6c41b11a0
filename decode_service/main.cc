// baton-decode: a decode worker.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/rpc/lifecycle.h"
#include "decode_service/server.h"
#include "spdlog/spdlog.h"

int main(int argc, char** argv) {
  using namespace baton;
  rpc::CatchStopSignals();
  decode_service::ServerOptions options;
  CLI::App app{"baton-decode: receives the KV cache of prompts and generates their answers, token by token."};
  worker::AddFlags(app, options.worker);
  app.add_option("--max-running", options.scheduler.max_sequences,
                 "Sequences at once, before new ones are refused")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--local-prefill-tokens", options.scheduler.local_prefill_tokens,
                 "Uncached rests of at most this many tokens are prefilled here")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--chunk-tokens", options.scheduler.chunk_tokens, "Prompt tokens of one request in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  app.add_option("--token-budget", options.scheduler.token_budget, "Tokens of all requests in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (absl::Status logging = rpc::SetUpLogging("decode", options.worker.log_level); !logging.ok()) {
    std::fprintf(stderr, "baton-decode: %s\n", std::string(logging.message()).c_str());
    return 2;
  }
  const worker::Options worker = options.worker;
  auto server = decode_service::DecodeServer::Start(std::move(options));
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
