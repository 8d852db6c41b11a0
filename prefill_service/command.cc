#include "prefill_service/command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "common/base/status.h"
#include "common/command_line/parse.h"
#include "common/rpc/process.h"
#include "worker/gpu_start.h"

namespace baton::prefill_service {

int RunCommand(int argc, char** argv, ServerOptions options) {
  if (const auto checked = worker::CheckPrefillIfAsked(argc, argv)) return *checked;
  rpc::BeginProcess();
  CLI::App app{"Computes the KV cache of prompts and ships it to decode workers.", "baton-prefill"};
  worker::AddFlags(app, options.worker);
  std::optional<int64_t> chunk_tokens, token_budget;
  app.add_option("--chunk-tokens", chunk_tokens,
                 "Prompt tokens of one request in one step (default: 512, on GPUs 2048)")
      ->check(CLI::Range(kBlockTokens, 1 << 20));
  app.add_option("--token-budget", token_budget,
                 "Tokens of all requests in one step (default: 512, on GPUs 2048)")
      ->check(CLI::Range(kBlockTokens, 1 << 20));
  command_line::ShowFirst(app, {"--model", "--listen", "--metrics", "--weights", "--kv-memory", "--backend",
                                "--tp", "--threads", "--link", "--chunk-tokens"});
  if (const auto code = command_line::Parse(app, argc, argv)) return *code;
  const int64_t rows = DefaultStepTokens(options.worker.engine.backend);
  options.scheduler.chunk_tokens = chunk_tokens.value_or(rows);
  options.scheduler.token_budget = token_budget.value_or(rows);
  worker::PrepareGpus(options.worker);
  return rpc::RunProcess(
      "prefill", options.worker.process, options.worker.security, [&]() -> absl::StatusOr<rpc::Serving> {
        BATON_ASSIGN_OR_RETURN(const std::shared_ptr<PrefillServer> server, PrefillServer::Start(options));
        return rpc::Serving{
            .addresses = {{"grpc", server->address()}, {"metrics", server->metrics_address()}},
            .drain = [server](absl::Duration grace) { server->Drain(grace); }};
      });
}

}  // namespace baton::prefill_service
