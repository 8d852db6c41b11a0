// `baton chat`: a conversation with a model. Typed by a person, read from a pipe (one turn per line), or
// given as flags (--message). Ctrl-C cancels the answer that is being written, and nothing else.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/show/summary.h"
#include "cli/talk/answer.h"
#include "cli/talk/history.h"
#include "cli/talk/interrupt.h"
#include "cli/talk/line_reader.h"
#include "cli/talk/request_flags.h"

namespace baton::cli {
namespace {

constexpr char kExamples[] = R"(
Examples:
  baton chat                                          talk to the router on this machine
  baton chat --model models/small                     no server: the whole relay in one process
  baton chat --system "Answer in one word." --message "The sky is?"
  baton chat --message "My name is Ada." --message "What is my name?" --show-timing
  printf 'Hello\nTell me more\n' | baton chat         one turn per line

While talking: /system TEXT, /reset, /stats, /help, /quit; Ctrl-C cancels the current answer.)";

constexpr char kHelp[] =
    "  /system TEXT   set the system prompt (no TEXT: remove it); the conversation goes on\n"
    "  /reset         forget the conversation\n"
    "  /stats         what happened to the last answer: cache, shipped blocks, TTFT by phase, TPOT\n"
    "  /quit          leave (so does Ctrl-D)\n"
    "  //...          a turn that begins with a slash\n"
    "  Ctrl-C         cancel the current answer\n";

struct Flags {
  TargetFlags target;
  SamplingFlags sampling;
  std::string system;
  std::vector<std::string> messages;
  bool thinking = false;
  bool show_timing = false;
};

class Chat {
 public:
  Chat(const Flags& flags, const Surroundings& surroundings, InferenceClient& client,
       const Interrupt& interrupt)
      : flags_(flags), surroundings_(surroundings), client_(client), interrupt_(interrupt) {
    history_.SetSystem(flags.system);
  }

  // One turn: asks, streams the answer, remembers both.
  absl::Status Say(const std::string& user) {
    v1::ChatRequest request;
    request.set_model(flags_.target.model_name);
    *request.mutable_conversation() = history_.With(user);
    if (flags_.thinking) request.mutable_conversation()->set_enable_thinking(true);
    *request.mutable_sampling() = flags_.sampling.Sampling();
    *request.mutable_stop() = flags_.sampling.Stop();
    interrupt_.Take();  // one from before this answer is not meant for it
    Answer answer;
    const absl::Status status =
        client_.Chat(request, {.cancel_fd = interrupt_.fd(), .timeout = flags_.target.Timeout()},
                     [&](const v1::GenerateResponse& event) {
                       answer.Take(event);
                       if (!event.has_delta()) return;
                       std::fwrite(event.delta().text().data(), 1, event.delta().text().size(), stdout);
                       std::fflush(stdout);
                     });
    const bool said_something = !answer.choices().empty() && !answer.choices()[0].text.empty();
    if (said_something || status.ok()) std::fputc('\n', stdout);
    std::fflush(stdout);
    interrupt_.Take();
    if (!status.ok()) {
      if (status.code() == absl::StatusCode::kCancelled && said_something) {
        history_.Add(user, answer.choices()[0].text);
      }
      return status;
    }
    if (const absl::Status complete = answer.CheckComplete(); !complete.ok()) return complete;
    history_.Add(user, answer.choices()[0].text);
    last_ = answer.choices()[0].end;
    if (flags_.show_timing) PrintStats();
    return absl::OkStatus();
  }

  int RunMessages() {
    for (const std::string& message : flags_.messages) {
      if (const absl::Status status = Say(message); !status.ok()) return Fail(status);
    }
    return kExitOk;
  }

  // A person or a pipe. A pipe ends at the first error: what follows was written for an answer that never
  // came.
  int RunLines(bool person) {
    LineReader reader(STDIN_FILENO);
    bool leaving = false;
    while (true) {
      if (person) Prompt();
      std::string line;
      const LineReader::Event event = reader.Next(interrupt_.fd(), &line);
      if (event == LineReader::Event::kInterrupt) {
        interrupt_.Take();
        if (leaving || !person) return person ? kExitOk : kExitError;
        leaving = true;
        fmt::print("\n(Ctrl-C again or /quit to leave)\n");
        continue;
      }
      leaving = false;
      if (event == LineReader::Event::kEnd) {
        if (person) std::fputc('\n', stdout);
        return kExitOk;
      }
      const Typed typed = ParseTyped(line);
      if (typed.kind == Typed::Kind::kQuit) return kExitOk;
      if (typed.kind != Typed::Kind::kTurn) {
        Obey(typed);
        continue;
      }
      const absl::Status status = Say(typed.text);
      if (status.ok()) continue;
      if (!person) return Fail(status);
      if (status.code() == absl::StatusCode::kCancelled) {
        fmt::print("{}\n", Paint(surroundings_.out, Style::kDim, "(cancelled)"));
      } else {
        Fail(status);
      }
    }
  }

 private:
  void Prompt() {
    fmt::print("{}", Paint(surroundings_.out, Style::kCyan, "> "));
    std::fflush(stdout);
  }

  void PrintStats() {
    if (!last_.has_value()) {
      fmt::print(stderr, "no answer yet\n");
      return;
    }
    fmt::print(stderr, "\n{}\n", RenderSummary(*last_, surroundings_.err));
  }

  void Obey(const Typed& typed) {
    switch (typed.kind) {
      case Typed::Kind::kReset:
        history_.Reset();
        fmt::print(stderr, "(a new conversation)\n");
        break;
      case Typed::Kind::kSystem:
        history_.SetSystem(typed.text);
        fmt::print(stderr, "(system prompt {})\n", typed.text.empty() ? "removed" : "set");
        break;
      case Typed::Kind::kStats:
        PrintStats();
        break;
      case Typed::Kind::kHelp:
        fmt::print(stderr, "{}", kHelp);
        break;
      case Typed::Kind::kUnknown:
        fmt::print(stderr, "\"{}\" is not a command:\n{}", typed.text, kHelp);
        break;
      case Typed::Kind::kNothing:
      case Typed::Kind::kTurn:
      case Typed::Kind::kQuit:
        break;
    }
  }

  const Flags& flags_;
  const Surroundings& surroundings_;
  InferenceClient& client_;
  const Interrupt& interrupt_;
  History history_;
  std::optional<v1::Finished> last_;
};

int Run(const Flags& flags, const Surroundings& surroundings) {
  if (const absl::Status status = flags.target.Check(); !status.ok())
    return Misused(std::string(status.message()));
  const Interrupt interrupt;
  absl::StatusOr<Target> target = Reach(flags.target, interrupt.fd(), surroundings.start_local_relay);
  if (!target.ok()) return Fail(target.status());
  Chat chat(flags, surroundings, *target->client, interrupt);
  if (!flags.messages.empty()) return chat.RunMessages();
  const bool person = isatty(STDIN_FILENO) == 1;
  if (person) {
    const absl::StatusOr<v1::ListModelsResponse> models = target->client->ListModels();
    if (!models.ok()) return Fail(models.status());
    const std::string model = !flags.target.model_name.empty() ? flags.target.model_name
                              : models->models().empty()       ? "a server without a model"
                                                               : models->models(0).name();
    fmt::print("{} at {}; /help for help\n", Paint(surroundings.out, Style::kBold, model),
               target->client->address());
  }
  return chat.RunLines(person);
}

}  // namespace

Command AddChat(CLI::App& root, const Surroundings& surroundings) {
  CLI::App* app =
      root.add_subcommand("chat", "Talk to a model: interactive, from a pipe, or one message at a time");
  app->footer(kExamples);
  auto flags = std::make_shared<Flags>();
  app->add_option("--message", flags->messages,
                  "Say this and leave; several are the turns of one conversation")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app->add_option("--system", flags->system, "The system prompt")->type_name("TEXT");
  app->add_flag("--thinking", flags->thinking, "Ask the model to think first, if its template knows how");
  app->add_flag("--show-timing", flags->show_timing,
                "After each answer: cache, shipped blocks, TTFT by phase, TPOT");
  flags->target.AddTo(*app);
  flags->sampling.AddTo(*app);
  return {app, [flags, &surroundings] { return Run(*flags, surroundings); }};
}

}  // namespace baton::cli
