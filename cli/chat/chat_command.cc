// `baton chat`: a conversation with a model. Typed by a person, read from a pipe (one turn per line), or
// given as flags (--message). Ctrl-C cancels the answer that is being written, and nothing else.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/chat/history.h"
#include "cli/chat/interrupt.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/line_reader.h"
#include "cli/chat/part_printer.h"
#include "cli/chat/request_flags.h"
#include "cli/chat/tools_file.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/show/print.h"
#include "cli/show/quantity.h"
#include "cli/show/summary.h"
#include "common/base/status.h"
#include "protocol/client/answer_fold.h"

namespace baton::cli {
namespace {

constexpr char kChatExamples[] = R"(
Examples:
  baton chat                                          talk to the router on this machine
  baton chat --model models/small                     no server: the whole relay in one process
  baton chat --system "Answer in one word." --message "The sky is?"
  baton chat --tools tools.json --message "What is the weather in Oslo?"     prints the calls that the model makes
  baton chat --message "My name is Ada." --message "What is my name?" --show-timing
  printf 'Hello\nTell me more\n' | baton chat         one turn per line

While talking: /system TEXT, /result TEXT, /reset, /stats, /help, /quit; Ctrl-C cancels the current answer. On a terminal lines are
edited as in a shell (arrows, Ctrl-A, Ctrl-E, Ctrl-R and so on); a paste of several lines is one turn, and Alt-Enter begins
another line.)";

constexpr char kHelp[] =
    "  /system TEXT   set the system prompt (no TEXT: remove it); the conversation continues\n"
    "  /reset         forget the conversation\n"
    "  /result TEXT   what the tool gave that the model called\n"
    "  /stats         what happened to the last answer: cache, shipped blocks, TTFT by phase, TPOT\n"
    "  /quit          leave (so does Ctrl-D)\n"
    "  //...          a turn that begins with a slash\n"
    "  Ctrl-C         cancel the current answer, or clear the line\n"
    "  Up, Ctrl-R     earlier lines\n"
    "  Alt-Enter      another line of the same turn; pasted lines are one turn\n";

struct ChatFlags {
  TargetFlags target;
  SamplingFlags sampling;
  std::string system;
  std::vector<std::string> messages;
  ConstraintFlags constraint;
  SpeculationFlags speculation;
  std::string tools_file;
  bool thinking = false;
  bool hide_thinking = false;
  std::optional<uint32_t> thinking_budget;
  std::string overflow = "drop-oldest";
  bool moderate = false;
  bool echo = false;
  bool show_timing = false;
};

// Values of --overflow.
constexpr std::pair<const char*, v1::Overflow::Mode> kOverflow[] = {
    {"refuse", v1::Overflow::MODE_REFUSE},
    {"clamp-output", v1::Overflow::MODE_CLAMP_OUTPUT},
    {"drop-oldest", v1::Overflow::MODE_DROP_OLDEST},
    {"drop-middle", v1::Overflow::MODE_DROP_MIDDLE},
    {"clear-tool-results", v1::Overflow::MODE_CLEAR_TOOL_RESULTS},
    {"clear-thinking", v1::Overflow::MODE_CLEAR_THINKING}};

std::vector<std::string> OverflowNames() {
  std::vector<std::string> names;
  for (const auto& [name, mode] : kOverflow) names.emplace_back(name);
  return names;
}

v1::Overflow::Mode OverflowOf(std::string_view wanted) {
  for (const auto& [name, mode] : kOverflow) {
    if (wanted == name) return mode;
  }
  return v1::Overflow::MODE_REFUSE;
}

// Says how the server made the conversation fit; empty: it did nothing.
std::string DescribeContext(const v1::ContextReport& report) {
  if (report.dropped_messages() > 0) {
    return fmt::format("its {} oldest messages are left out", report.dropped_messages());
  }
  if (report.cleared_tool_results() > 0) {
    return fmt::format("{} old results of tools are left out", report.cleared_tool_results());
  }
  if (report.cleared_thinking() > 0) {
    return fmt::format("the thinking of {} old answers is left out", report.cleared_thinking());
  }
  return "";
}

std::string DescribeBlock(const v1::ModerationResult& result) {
  std::string names;
  for (const v1::ModerationCategory& category : result.categories()) {
    names += (names.empty() ? "" : ", ") + category.name();
  }
  return fmt::format("({} blocked: {})\n", result.input() ? "your message was" : "the answer was", names);
}

class Chat {
 public:
  Chat(const ChatFlags& flags, const CliContext& context, InferenceClient& client, const Interrupt& interrupt,
       std::vector<v1::Tool> tools, std::optional<v1::Constraint> constraint)
      : flags_(flags),
        context_(context),
        client_(client),
        interrupt_(interrupt),
        tools_(std::move(tools)),
        constraint_(std::move(constraint)) {
    history_.SetSystem(flags.system);
  }

  // One turn: asks, streams the answer, remembers both. `echo`: prints what is asked first.
  absl::Status Say(const std::string& user, bool echo) {
    if (echo) {
      BATON_RETURN_IF_ERROR(Put(fmt::format("{}{}\n", Paint(context_.out, Style::kCyan, "> "), user)));
    }
    calls_.clear();
    return Ask({UserMessage(user)});
  }

  // The result of the first call without one; once all have theirs, asks the model to go on.
  absl::Status Result(const std::string& text) {
    if (calls_.empty()) {
      Tell("no call waits for a result\n");
      return absl::OkStatus();
    }
    results_.push_back(ResultMessage(calls_.front().id(), text));
    calls_.erase(calls_.begin());
    if (!calls_.empty()) return absl::OkStatus();
    return Ask(std::exchange(results_, {}));
  }

  absl::Status Ask(const std::vector<v1::Message>& asked) {
    const v1::ChatRequest request = Request(asked);
    interrupt_.Take();  // one from before this answer is not meant for it
    protocol::AnswerFold answer;
    PartPrinter printer(context_.out, context_.err);
    absl::Status status =
        client_.Chat(request, {.cancel_fd = interrupt_.fd(), .timeout = flags_.target.Timeout()},
                     [&](const v1::GenerateResponse& event) {
                       answer.Add(event);
                       if (!event.has_delta()) return absl::OkStatus();
                       const PartPrinter::Shown shown = printer.Show(event.delta());
                       if (!shown.err.empty()) Tell(shown.err);
                       return Put(shown.out);
                     });
    const bool said_something = !answer.choices().empty() &&
                                (!answer.choices()[0].text().empty() || !answer.choices()[0].parts().empty());
    if (said_something || status.ok()) status.Update(Put("\n"));
    // Said once for each cut: the same messages are left out of the turns that follow.
    std::string context = DescribeContext(answer.started().context());
    if (!context.empty() && context != told_of_context_) {
      Tell("(the conversation is longer than the model's context: {})\n", context);
      told_of_context_ = std::move(context);
    }
    interrupt_.Take();
    if (!status.ok()) {
      if (status.code() == absl::StatusCode::kCancelled && said_something) {
        history_.Add(asked, AssistantMessage(answer.choices()[0].text()));
      }
      if (history_.turns() > 0 && status.code() == absl::StatusCode::kFailedPrecondition) {
        reset_because_ = "a shorter conversation may fit";  // no worker has KV memory for so much
      } else if (history_.turns() > 0 && !Shortens() && FillsContext(request, status)) {
        reset_because_ = ContextIsFull();
      }
      return status;
    }
    BATON_RETURN_IF_ERROR(answer.CheckWhole());
    results_.clear();
    for (const v1::AnswerPart& part : answer.choices()[0].parts()) {
      if (part.has_tool_call() && part.complete()) calls_.push_back(part.tool_call());
    }
    const v1::Finished& end = answer.choices()[0].finished();
    const bool blocked = end.reason() == v1::FINISH_REASON_CONTENT_FILTER;
    // Blocked text would be judged, and blocked, again with each further turn.
    if (!blocked) history_.Add(asked, AssistantMessage(answer.choices()[0].text(), calls_));
    for (const v1::Warning& warning : answer.choices()[0].finished().warnings())
      Tell("({})\n", warning.message());
    last_ = answer.choices()[0].finished();
    if (blocked) Tell("{}", DescribeBlock(last_->moderation()));
    if (flags_.show_timing) PrintStats();
    const v1::Usage& usage = last_->usage();
    // A server that leaves something out has room for the next turn.
    if (!Shortens() && IsCut(last_->reason()) && ContextTokens() > 0 &&
        int64_t{usage.prompt_tokens()} + usage.completion_tokens() >= ContextTokens()) {
      reset_because_ = ContextIsFull();
    }
    return absl::OkStatus();
  }

  int RunMessages() {
    for (const std::string& message : flags_.messages) {
      if (const absl::Status status = Say(message, flags_.echo); !status.ok()) return Fail(status);
    }
    return kExitOk;
  }

  // A person or a pipe. A pipe ends at the first error: what follows was written for an answer that never
  // came. `editor`: null for a pipe, and for terminals that it can't use.
  int RunLines(bool person, LineEditor* editor) {
    LineReader reader(STDIN_FILENO);
    bool leaving = false;
    while (true) {
      if (person && editor == nullptr) Prompt();
      std::string line;
      const LineReader::Event event =
          editor != nullptr ? editor->Next(interrupt_.fd(), &line) : reader.Next(interrupt_.fd(), &line);
      if (event == LineReader::Event::kInterrupt) {
        interrupt_.Take();
        if (!person) return kExitError;
        if (leaving && line.empty()) return kExitOk;
        leaving = line.empty();  // else it was about that line
        if (leaving)
          Note(editor != nullptr ? "(Ctrl-C again or /quit to leave)" : "\n(Ctrl-C again or /quit to leave)");
        continue;
      }
      leaving = false;
      if (event == LineReader::Event::kEnd) {
        if (person) Note("");
        return kExitOk;
      }
      if (RepairUtf8(&line)) Tell("baton: parts of this turn were not UTF-8 and were replaced by U+FFFD\n");
      const Typed typed = ParseTyped(line);
      if (typed.kind == Typed::Kind::kQuit) return kExitOk;
      if (typed.kind != Typed::Kind::kTurn && typed.kind != Typed::Kind::kResult) {
        Obey(typed);
        continue;
      }
      const absl::Status status =
          typed.kind == Typed::Kind::kResult ? Result(typed.text) : Say(typed.text, flags_.echo && !person);
      if (person && status.code() == absl::StatusCode::kCancelled) {
        Note(Paint(context_.out, Style::kDim, "(cancelled)"));
      } else if (!status.ok()) {
        Fail(status);
      }
      if (!reset_because_.empty()) {
        Tell("({}: /reset begins a new one)\n", std::exchange(reset_because_, {}));
      }
      if (!person && !status.ok()) return kExitError;
    }
  }

 private:
  v1::ChatRequest Request(const std::vector<v1::Message>& asked) const {
    v1::ChatRequest request;
    request.set_model(flags_.target.model_name);
    *request.mutable_conversation() = history_.With(asked);
    *request.mutable_conversation()->mutable_tools() = {tools_.begin(), tools_.end()};
    if (flags_.thinking) request.mutable_thinking()->set_enabled(true);
    if (flags_.thinking_budget.has_value()) {
      request.mutable_thinking()->set_budget_tokens(*flags_.thinking_budget);
    }
    if (flags_.hide_thinking) request.mutable_thinking()->set_show(v1::Thinking::SHOW_NONE);
    *request.mutable_sampling() = flags_.sampling.Sampling();
    *request.mutable_stop() = flags_.sampling.Stop();
    flags_.speculation.Set(*request.mutable_options(), *request.mutable_output());
    if (constraint_.has_value()) *request.mutable_constraint() = *constraint_;
    request.mutable_overflow()->set_mode(OverflowOf(flags_.overflow));
    if (flags_.moderate) {
      request.mutable_options()->mutable_moderation()->set_policy(v1::Moderation::POLICY_BLOCK);
      request.mutable_options()->mutable_moderation()->set_input(true);
    }
    return request;
  }

  // True if a conversation that is too long is made to fit.
  bool Shortens() const {
    const v1::Overflow::Mode mode = OverflowOf(flags_.overflow);
    return mode != v1::Overflow::MODE_REFUSE && mode != v1::Overflow::MODE_CLAMP_OUTPUT;
  }

  static bool IsCut(v1::FinishReason reason) {
    return reason == v1::FINISH_REASON_LENGTH || reason == v1::FINISH_REASON_CONTEXT_FULL;
  }

  // A line for the person at the terminal, among the answers.
  static void Note(std::string_view text) {
    Print(stdout, "{}\n", text);
    std::fflush(stdout);
  }

  void Prompt() {
    Print(stdout, "{}", Paint(context_.out, Style::kCyan, "> "));
    std::fflush(stdout);
  }

  void PrintStats() {
    if (!last_.has_value()) {
      Tell("no answer yet\n");
      return;
    }
    Tell("\n{}\n", RenderSummary(*last_, context_.err));
  }

  // Context of the model in use; 0 if the server doesn't say.
  int64_t ContextTokens() {
    if (!context_tokens_.has_value()) {
      context_tokens_ = 0;
      const absl::StatusOr<v1::ListModelsResponse> models = client_.ListModels();
      if (!models.ok()) return 0;
      for (const v1::ModelInfo& model : models->models()) {
        if (flags_.target.model_name.empty() || model.name() == flags_.target.model_name) {
          context_tokens_ = model.context_tokens();
          break;
        }
      }
    }
    return *context_tokens_;
  }

  // Was `request` refused because the conversation leaves no room for an answer?
  bool FillsContext(const v1::ChatRequest& request, const absl::Status& status) {
    if (status.code() != absl::StatusCode::kInvalidArgument) return false;
    v1::CountTokensRequest question;
    *question.mutable_chat() = request;
    const absl::StatusOr<v1::CountTokensResponse> prompt = client_.CountTokens(question);
    if (!prompt.ok() || ContextTokens() == 0) return false;
    const int64_t answer = std::max<int64_t>(1, request.stop().max_tokens());
    return prompt->prompt_tokens() + answer > ContextTokens();
  }

  std::string ContextIsFull() {
    return fmt::format("the conversation fills the context of {} tokens", ShowCount(ContextTokens()));
  }

  void Obey(const Typed& typed) {
    switch (typed.kind) {
      case Typed::Kind::kReset:
        history_.Reset();
        calls_.clear();
        results_.clear();
        told_of_context_.clear();
        Tell("(a new conversation)\n");
        break;
      case Typed::Kind::kSystem:
        history_.SetSystem(typed.text);
        Tell("(system prompt {})\n", typed.text.empty() ? "removed" : "set");
        break;
      case Typed::Kind::kStats:
        PrintStats();
        break;
      case Typed::Kind::kHelp:
        Tell(kHelp);
        break;
      case Typed::Kind::kUnknown:
        Tell("\"{}\" is not a command:\n{}", typed.text, kHelp);
        break;
      case Typed::Kind::kNothing:
      case Typed::Kind::kTurn:
      case Typed::Kind::kResult:
      case Typed::Kind::kQuit:
        break;
    }
  }

  const ChatFlags& flags_;
  const CliContext& context_;
  InferenceClient& client_;
  const Interrupt& interrupt_;
  const std::vector<v1::Tool> tools_;
  const std::optional<v1::Constraint> constraint_;
  History history_;
  // The last answer's calls without a result, and the results so far of those before them.
  std::vector<v1::ToolCall> calls_;
  std::vector<v1::Message> results_;
  std::optional<v1::Finished> last_;
  std::optional<int64_t> context_tokens_;
  // Set by a turn after which the conversation should begin again: why.
  std::string reset_because_;
  // The last description of the context that was shown.
  std::string told_of_context_;
};

int RunChat(const ChatFlags& flags, const CliContext& context) {
  if (const absl::Status status = flags.target.Check(); !status.ok())
    return Misused(std::string(status.message()));
  for (std::string text : flags.messages) {
    if (RepairUtf8(&text)) return Misused("--message: the text is not UTF-8");
  }
  if (std::string text = flags.system; RepairUtf8(&text)) return Misused("--system: the text is not UTF-8");
  std::vector<v1::Tool> tools;
  if (!flags.tools_file.empty()) {
    auto read = ReadTools(flags.tools_file);
    if (!read.ok()) return Misused(fmt::format("--tools {}", std::string(read.status().message())));
    tools = *std::move(read);
  }
  auto constraint = flags.constraint.Read();
  if (!constraint.ok()) return Misused(std::string(constraint.status().message()));
  const Interrupt interrupt;
  const bool person = flags.messages.empty() && isatty(STDIN_FILENO) == 1;
  std::optional<LineEditor> editor;
  if (person && LineEditor::Usable()) editor.emplace(context.out);
  absl::StatusOr<Target> target = Reach(flags.target, interrupt.fd(), context);
  if (!target.ok()) return Fail(target.status());
  Chat chat(flags, context, *target->client, interrupt, std::move(tools), *std::move(constraint));
  if (!flags.messages.empty()) return chat.RunMessages();
  if (person) {
    const absl::StatusOr<v1::ListModelsResponse> models = target->client->ListModels();
    if (!models.ok()) return Fail(models.status());
    const std::string model = !flags.target.model_name.empty() ? flags.target.model_name
                              : models->models().empty()       ? "a server without a model"
                                                               : models->models(0).name();
    Print(stdout, "{} at {}; /help for help\n", Paint(context.out, Style::kBold, model),
          target->client->address());
    std::fflush(stdout);
  }
  return chat.RunLines(person, editor.has_value() ? &*editor : nullptr);
}

}  // namespace

Command AddChat(CLI::App& root, const CliContext& context) {
  CLI::App* app =
      root.add_subcommand("chat", "Talk to a model: interactive, from a pipe, or one message at a time");
  app->footer(kChatExamples);
  auto flags = std::make_shared<ChatFlags>();
  app->add_option("--message", flags->messages,
                  "Send this message and exit; several are the turns of one conversation")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app->add_option("--system", flags->system, "The system prompt")->type_name("TEXT");
  app->add_flag("--thinking", flags->thinking, "Ask the model to think first, if its template supports that");
  app->add_option("--thinking-budget", flags->thinking_budget, "At most N tokens of thinking")
      ->type_name("N");
  app->add_flag("--hide-thinking", flags->hide_thinking, "Do not show what the model thinks");
  app->add_option("--tools", flags->tools_file,
                  "JSON list of tools that the model may call: {\"name\", \"description\", \"parameters\"}; "
                  "/result TEXT answers a call")
      ->type_name("FILE");
  flags->constraint.AddTo(*app);
  app->add_option("--overflow", flags->overflow,
                  "What is left out of a conversation that is longer than the model's context")
      ->check(CLI::IsMember(OverflowNames()))
      ->type_name("HOW")
      ->capture_default_str();
  app->add_flag("--moderate", flags->moderate,
                "Let the server's classifier judge what you write and what is answered, and block what is "
                "harmful");
  app->add_flag("--echo", flags->echo, "Print each message or line of a pipe before its answer");
  app->add_flag("--show-timing", flags->show_timing,
                "After each answer: cache, shipped blocks, TTFT by phase, TPOT");
  flags->target.AddTo(*app);
  flags->sampling.AddTo(*app);
  flags->speculation.AddTo(*app);
  return {app, [flags, &context] { return RunChat(*flags, context); }};
}

}  // namespace baton::cli
