// `baton explain`: one prompt, seen through: its tokens, what was cached, where it was computed, the phases
// of TTFT, and how each token of the answer was chosen.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/chat/answer_json.h"
#include "cli/chat/interrupt.h"
#include "cli/chat/request_flags.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/explain/explanation.h"
#include "cli/show/print.h"
#include "cli/show/summary.h"
#include "common/base/status.h"
#include "protocol/client/answer_fold.h"

namespace baton::cli {
namespace {

// A table for each of them is as much as people read.
constexpr uint32_t kExplainedTokens = 8;

constexpr char kExplainExamples[] = R"(
Examples:
  baton explain "The cat sat on the mat because"
  baton explain --model models/baton-tiny "Once upon a time" --top-k 40 --top-p 0.9
      no server: the whole relay in one process
  baton explain --chat "What is 27 + 35?" --temperature 0
      as a user's message, through the model's template
  baton explain "The sky is" --seed 7 --json

Read a table from left to right: the model's logit; the logit after penalties; the probability before
anything else, after constraint and temperature, and in the distribution that is drawn from. A dash is a
token that a filter dropped, with the filter's name.)";

struct ExplainFlags {
  TargetFlags target;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  std::optional<std::string> prompt;
  bool chat = false;
  bool json = false;
};

v1::OutputOptions ExplainedOutput() {
  v1::OutputOptions output;
  output.set_token_ids(true);
  output.set_explain(true);
  return output;
}

// A request of Chat or Generate with all that both have.
template <typename Request>
Request Asked(const ExplainFlags& flags, const std::optional<v1::Constraint>& constraint) {
  Request request;
  request.set_model(flags.target.model_name);
  *request.mutable_sampling() = flags.sampling.Sampling();
  *request.mutable_stop() = flags.sampling.Stop();
  if (!flags.sampling.max_tokens.has_value()) request.mutable_stop()->set_max_tokens(kExplainedTokens);
  *request.mutable_output() = ExplainedOutput();
  if (constraint.has_value()) *request.mutable_constraint() = *constraint;
  return request;
}

absl::StatusOr<std::vector<PromptToken>> PromptTokens(InferenceClient& client, const ExplainFlags& flags,
                                                      const v1::TokenizeRequest& asked) {
  BATON_ASSIGN_OR_RETURN(const v1::TokenizeResponse prompt, client.Tokenize(asked));
  v1::DetokenizeRequest request;
  request.set_model(flags.target.model_name);
  request.set_pieces(true);
  *request.mutable_token_ids() = prompt.token_ids();
  BATON_ASSIGN_OR_RETURN(const v1::DetokenizeResponse pieces, client.Detokenize(request));
  std::vector<PromptToken> tokens;
  for (int i = 0; i < prompt.token_ids_size(); ++i) {
    // A router of an older version tells no pieces.
    tokens.push_back({prompt.token_ids(i), i < pieces.pieces_size() ? pieces.pieces(i) : ""});
  }
  return tokens;
}

nlohmann::ordered_json ExplanationJson(const std::vector<PromptToken>& prompt,
                                       const protocol::AnswerFold& answer) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (const PromptToken& token : prompt) {
    tokens.push_back({{"token", token.bytes}, {"token_id", token.id}});
  }
  nlohmann::ordered_json json = AnswerJson(answer.answer());
  json["prompt"] = std::move(tokens);
  return json;
}

std::string ExplanationText(const std::vector<PromptToken>& prompt, const v1::AnswerChoice& choice,
                            const Terminal& terminal) {
  std::string text = RenderPrompt(prompt, choice.finished().usage().cached_tokens(), terminal) + "\n";
  text += RenderSummary(choice.finished(), terminal) + RenderKv(choice.finished(), terminal);
  if (choice.sampling().empty() && choice.finished().usage().completion_tokens() > 0)
    text += "\nThe server tells no traces: it is of an older version.\n";
  for (int i = 0; i < choice.sampling().size(); ++i) {
    text += RenderTrace(i + 1, choice.sampling()[i], terminal);
  }
  return text + fmt::format("\nThe answer: {}\n", ShowPiece(choice.text(), terminal));
}

int RunExplain(ExplainFlags flags, const CliContext& context) {
  if (const absl::Status status = flags.target.Check(); !status.ok())
    return Misused(std::string(status.message()));
  if (!flags.prompt.has_value()) {
    if (isatty(STDIN_FILENO) == 1)
      return Misused("there is no prompt: give it as an argument, or on standard input");
    flags.prompt.emplace(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  const auto constraint = flags.constraint.Read();
  if (!constraint.ok()) return Misused(std::string(constraint.status().message()));

  v1::TokenizeRequest asked;
  if (flags.chat) {
    v1::ChatRequest& chat = *asked.mutable_chat();
    chat = Asked<v1::ChatRequest>(flags, *constraint);
    v1::Message& message = *chat.mutable_conversation()->add_messages();
    message.set_role("user");
    message.set_content(*flags.prompt);
  } else {
    *asked.mutable_generate() = Asked<v1::GenerateRequest>(flags, *constraint);
    asked.mutable_generate()->set_text(*flags.prompt);
  }

  const Interrupt interrupt;
  absl::StatusOr<Target> target = Reach(flags.target, interrupt.fd(), context);
  if (!target.ok()) return Fail(target.status());
  const auto prompt = PromptTokens(*target->client, flags, asked);
  if (!prompt.ok()) return Fail(prompt.status());
  protocol::AnswerFold answer;
  const auto take = [&](const v1::GenerateResponse& event) {
    answer.Add(event);
    return absl::OkStatus();
  };
  const StreamOptions options = {.cancel_fd = interrupt.fd(), .timeout = flags.target.Timeout()};
  absl::Status status = flags.chat ? target->client->Chat(asked.chat(), options, take)
                                   : target->client->Generate(asked.generate(), options, take);
  if (status.ok()) status = answer.CheckWhole();
  if (!status.ok()) return Fail(status);
  const std::string text =
      flags.json ? ExplanationJson(*prompt, answer)
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                       "\n"
                 : ExplanationText(*prompt, answer.choices()[0], context.out);
  const absl::Status written = Put(text);
  return written.ok() ? kExitOk : Fail(written);
}

}  // namespace

Command AddExplain(CLI::App& root, const CliContext& context) {
  CLI::App* app = root.add_subcommand("explain", "Watch one prompt go through, down to each draw");
  app->footer(kExplainExamples);
  auto flags = std::make_shared<ExplainFlags>();
  app->add_option("prompt", flags->prompt, "The text to complete (default: standard input)")
      ->type_name("TEXT");
  app->add_flag("--chat", flags->chat, "The text is a user's message, which the model's template renders");
  flags->target.AddTo(*app);
  flags->constraint.AddTo(*app);
  flags->sampling.AddTo(*app);
  app->get_option("--max-tokens")->default_str(std::to_string(kExplainedTokens));
  app->add_flag("--json", flags->json, "Print one JSON object")->group("Output");
  return {app, [flags, &context] { return RunExplain(*flags, context); }};
}

}  // namespace baton::cli
