#include "decode_service/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/command_line/option_types.h"
#include "common/command_line/parse.h"
#include "common/rpc/process.h"
#include "worker/gpu_start.h"

namespace baton::decode_service {

int RunCommand(int argc, char** argv, ServerOptions options) {
  if (const auto checked = worker::CheckPrefillIfAsked(argc, argv)) return *checked;
  rpc::BeginProcess();
  CLI::App app{"Receives the KV cache of prompts and generates their answers, token by token.",
               "baton-decode"};
  worker::AddFlags(app, options.worker);
  app.add_option("--max-running", options.scheduler.max_sequences,
                 "Sequences at once, before new ones are refused")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--local-prefill-tokens", options.local_prefill_tokens,
                 fmt::format("Uncached rests of prompts of at most this many tokens are computed here, and "
                             "longer ones on a prefill worker whenever one is up; unset: rests of at most "
                             "{}, and longer ones where the router predicts that to be sooner",
                             options.scheduler.local_prefill_tokens))
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--chunk-tokens", options.scheduler.step.chunk_tokens,
                 "Prompt tokens of one request in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  app.add_option("--token-budget", options.scheduler.step.token_budget, "Tokens of all requests in one step")
      ->check(CLI::Range(kBlockTokens, 1 << 20))
      ->capture_default_str();
  app.add_option(
         "--speculation", options.speculation,
         fmt::format(
             "What answers are drafted with, for the model to check several tokens in a step: "
             "whatever is right is kept, so no answer changes; off, or some of {} with commas between "
             "them; auto: all that there are, and none with --backend cuda, whose bits depend on a "
             "step's rows",
             absl::StrJoin(SpeculationNames(), ", ")))
      ->type_name("HOW")
      ->check(command_line::OneOrSeveral({"off", "auto"}, SpeculationNames()))
      ->capture_default_str();
  app.add_option("--draft-model", options.draft_model,
                 "A folder with a smaller model of the same tokenizer, which drafts answers: its seconds are "
                 "spent where they save more")
      ->type_name("DIR");
  app.add_flag(
      "--self-draft", options.self_draft,
      "A copy of the model's own weights in 4 bits drafts answers, and takes a quarter of the memory of "
      "bf16 weights besides");
  app.add_option("--link-peers", options.link_check.peers,
                 "Prefill workers (host:port) to test the link with before this worker is ready")
      ->delimiter(',')
      ->type_name("ADDRS");
  app.add_option("--link-floor-gbps", options.link_check.floor_gbps,
                 "Gigabytes (10^9 bytes) per second that the link to one of --link-peers has to carry")
      ->type_name("GB/S")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--link-transport", options.link_check.transport,
         "What NCCL has to carry KV by for this worker to be ready: p2p (NVLink, PCIe), or rdma or p2p")
      ->check(CLI::IsMember({"any", "p2p", "rdma"}))
      ->capture_default_str();
  command_line::ShowFirst(app, {"--model", "--listen", "--metrics", "--weights", "--kv-memory", "--backend",
                                "--tp", "--threads", "--link", "--max-running"});
  if (const auto code = command_line::Parse(app, argc, argv)) return *code;
  if (options.link_check.floor_gbps > 0 && options.link_check.peers.empty()) {
    return command_line::Misused(app, "--link-floor-gbps says how fast, not to whom: add --link-peers");
  }
  if (options.link_check.transport != "any" && options.link_check.peers.empty()) {
    return command_line::Misused(app, "--link-transport is what a test has to show: add --link-peers");
  }
  worker::PrepareGpus(options.worker);
  return rpc::RunProcess(
      "decode", options.worker.process, options.worker.security, [&]() -> absl::StatusOr<rpc::Serving> {
        BATON_ASSIGN_OR_RETURN(const std::shared_ptr<DecodeServer> server, DecodeServer::Start(options));
        return rpc::Serving{
            .addresses = {{"grpc", server->address()}, {"metrics", server->metrics_address()}},
            .drain = [server](absl::Duration grace) { server->Drain(grace); }};
      });
}

}  // namespace baton::decode_service
