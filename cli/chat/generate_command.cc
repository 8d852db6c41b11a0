// `baton generate`: one prompt, text or token ids, through a router; the answer on standard output as it
// comes.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "cli/chat/answer_json.h"
#include "cli/chat/interrupt.h"
#include "cli/chat/request_flags.h"
#include "cli/chat/token_ids.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/show/print.h"
#include "cli/show/summary.h"
#include "protocol/client/answer_fold.h"

namespace baton::cli {
namespace {

constexpr char kGenerateExamples[] = R"(
Examples:
  baton generate --prompt "Once upon a time" --max-tokens 40
  baton generate --model models/small --prompt "Hello" -m 20 --show-timing
      no server: the whole relay in one process
  echo "The sky is" | baton generate --temperature 0 --json
  baton generate --token-ids 1,15,27 --ids-out --max-tokens 8
  baton generate --prompt "A:" --n 3 --seed 7 --temperature 0.8
  baton generate --prompt "1 + 1 =" --temperature 0 --digest
      equal digests: two runs computed the same bits)";

struct GenerateFlags {
  TargetFlags target;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  SpeculationFlags speculation;
  std::optional<std::string> prompt;
  std::vector<int32_t> token_ids;
  bool literal = false;
  uint32_t n = 1;
  std::optional<uint32_t> logprobs;
  bool special_tokens = false;
  bool ids_out = false;
  bool json = false;
  bool show_timing = false;
  bool digest = false;
};

v1::GenerateRequest MakeRequest(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  request.set_model(flags.target.model_name);
  if (!flags.token_ids.empty()) {
    for (const int32_t id : flags.token_ids) request.mutable_token_ids()->add_ids(id);
  } else if (flags.prompt.has_value()) {
    request.set_text(*flags.prompt);
  } else {
    request.set_text(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  }
  request.set_literal(flags.literal);
  *request.mutable_sampling() = flags.sampling.Sampling();
  *request.mutable_stop() = flags.sampling.Stop();
  v1::OutputOptions& output = *request.mutable_output();
  output.set_token_ids(flags.ids_out || flags.json);
  output.set_logprobs(flags.logprobs.has_value());
  output.set_top_logprobs(flags.logprobs.value_or(0));
  output.set_special_tokens(flags.special_tokens);
  output.set_logits_digest(flags.digest);
  request.mutable_options()->set_n(flags.n);
  flags.speculation.Set(*request.mutable_options(), output);
  return request;
}

void PrintLogprobs(const google::protobuf::RepeatedPtrField<v1::StepLogprobs>& steps) {
  const auto show = [](const v1::TokenLogprob& token) {
    return fmt::format("\"{}\" {:.3f}", absl::CEscape(token.bytes()), token.logprob());
  };
  for (const v1::StepLogprobs& step : steps) {
    std::vector<std::string> top;
    for (const v1::TokenLogprob& token : step.top()) top.push_back(show(token));
    Tell("  {:<28} {}\n", show(step.chosen()), absl::StrJoin(top, "  "));
  }
}

// Prints what was not streamed; several choices never are, since they would mix.
absl::Status PrintAnswer(const GenerateFlags& flags, const protocol::AnswerFold& answer, bool streamed) {
  std::string text;
  for (int i = 0; i < answer.choices().size(); ++i) {
    const v1::AnswerChoice& choice = answer.choices()[i];
    if (!streamed) {
      if (answer.choices().size() > 1) text += fmt::format("[{}] ", i);
      text += flags.ids_out ? absl::StrJoin(choice.token_ids(), ",") : choice.text();
    }
    text += '\n';
  }
  return Put(text);
}

int RunGenerate(const GenerateFlags& flags, const CliContext& context) {
  if (flags.prompt.has_value() && !flags.token_ids.empty()) {
    return Misused("--prompt and --token-ids are two forms of the same prompt: give one");
  }
  if (flags.literal && !flags.token_ids.empty()) return Misused("--literal is for text, not for --token-ids");
  if (const absl::Status status = flags.target.Check(); !status.ok())
    return Misused(std::string(status.message()));
  const bool from_input = !flags.prompt.has_value() && flags.token_ids.empty();
  if (from_input && isatty(STDIN_FILENO) == 1) {
    return Misused("there is no prompt: give --prompt TEXT, --token-ids 1,2,3, or a text on standard input");
  }
  const auto constraint = flags.constraint.Read();
  if (!constraint.ok()) return Misused(std::string(constraint.status().message()));
  v1::GenerateRequest request = MakeRequest(flags);
  if (constraint->has_value()) *request.mutable_constraint() = **constraint;

  const Interrupt interrupt;
  absl::StatusOr<Target> target = Reach(flags.target, interrupt.fd(), context);
  if (!target.ok()) return Fail(target.status());
  const bool streamed = !flags.json && !flags.ids_out && flags.n == 1;
  protocol::AnswerFold answer;
  absl::Status status =
      target->client->Generate(request, {.cancel_fd = interrupt.fd(), .timeout = flags.target.Timeout()},
                               [&](const v1::GenerateResponse& event) {
                                 answer.Add(event);
                                 if (!streamed || !event.has_delta()) return absl::OkStatus();
                                 return Put(event.delta().text());
                               });
  if (status.ok()) status = answer.CheckWhole();
  if (!status.ok()) {
    if (streamed && !answer.choices().empty()) Put("\n").IgnoreError();
    return Fail(status);
  }
  if (flags.json) {
    nlohmann::ordered_json json = AnswerJson(answer.answer());
    if (flags.digest) json["logits_digest"] = fmt::format("{:08x}", LogitsDigest(answer.answer()));
    // The router only sends valid UTF-8; should another server not, the JSON stays valid.
    const absl::Status written =
        Put(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return written.ok() ? kExitOk : Fail(written);
  }
  if (const absl::Status written = PrintAnswer(flags, answer, streamed); !written.ok()) return Fail(written);
  if (flags.logprobs.has_value()) {
    for (const v1::AnswerChoice& choice : answer.choices()) PrintLogprobs(choice.logprobs());
  }
  if (flags.digest) Tell("logits digest {:08x}\n", LogitsDigest(answer.answer()));
  if (flags.show_timing) {
    for (const v1::AnswerChoice& choice : answer.choices()) {
      Tell("\n{}", RenderSummary(choice.finished(), context.err));
    }
  }
  return kExitOk;
}

}  // namespace

Command AddGenerate(CLI::App& root, const CliContext& context) {
  CLI::App* app = root.add_subcommand("generate", "Complete a prompt, given as text or token ids");
  app->footer(kGenerateExamples);
  auto flags = std::make_shared<GenerateFlags>();
  app->add_option("-p,--prompt", flags->prompt, "The text to complete (default: standard input)")
      ->type_name("TEXT");
  AddTokenIds(*app, "--token-ids", flags->token_ids, "The prompt as token ids, 1,2,3");
  app->add_flag("--literal", flags->literal,
                "Take special tokens in the text as characters, for text that others wrote");
  flags->target.AddTo(*app);
  flags->constraint.AddTo(*app);
  flags->sampling.AddTo(*app);
  flags->speculation.AddTo(*app);
  app->add_option("-n,--n", flags->n, "Independent answers; answer i samples with seed + i")->type_name("N");
  const std::string output = "Output";
  app->add_flag("--json", flags->json, "Print one JSON object at the end")->group(output);
  app->add_flag("--ids-out", flags->ids_out, "Print token ids instead of text")->group(output);
  app->add_option("--logprobs", flags->logprobs,
                  "Log probabilities, with the K likeliest tokens of each step")
      ->type_name("K")
      ->check(CLI::Range(0, 20))
      ->group(output);
  app->add_flag("--special-tokens", flags->special_tokens, "Keep special tokens in the text")->group(output);
  app->add_flag("--show-timing", flags->show_timing,
                "What happened: cache, shipped blocks, TTFT by phase, TPOT")
      ->group(output);
  app->add_flag("--digest", flags->digest, "A checksum of all logits, to compare two runs bit by bit")
      ->group(output);
  return {app, [flags, &context] { return RunGenerate(*flags, context); }};
}

}  // namespace baton::cli
