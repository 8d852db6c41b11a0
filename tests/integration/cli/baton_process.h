// Runs the real `baton` binary, or a server's, as a user or a script would. One thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/patience.h"

namespace baton::cli {

inline constexpr char kModel[] = BATON_SOURCE_DIR "/models/baton-tiny";
// How long a test waits for output.
inline constexpr int kPatienceMs = Scaled(60'000);

// A command line that the child of a fork becomes. Everything is allocated by the constructor, before the
// fork: the child of a process with other threads must not allocate, since a lock of the allocator (that of
// AddressSanitizer, of which fork knows nothing) may be held there for ever.
class Program {
 public:
  // arguments: with the program's name. The environment is this process's, without colours and translations.
  Program(std::string path, std::vector<std::string> arguments);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // In the child.
  [[noreturn]] void Exec() const;

 private:
  const std::string path_;
  std::vector<std::string> arguments_, environment_;
  std::vector<char*> argv_, envp_;
};

struct Outcome {
  // -1: killed by a signal.
  int code = -1;
  std::string out;
  std::string err;
};

// Where a stream of a command goes.
enum class Sink {
  kRead,    // to the test
  kFull,    // a full disk: /dev/full
  kGone,    // a pipe whose reader has gone
  kClosed,  // nowhere: the descriptor is closed
};

// Runs `baton ARGUMENTS` to its end with `input` on standard input. What goes elsewhere is empty in the
// outcome.
Outcome RunBaton(const std::vector<std::string>& arguments, std::string_view input = "",
                 Sink out = Sink::kRead, Sink err = Sink::kRead);
// The same with another binary of the build, "baton-router".
Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                   std::string_view input = "", Sink out = Sink::kRead, Sink err = Sink::kRead);

// `baton` on a terminal of its own (an xterm of 24 lines and 80 columns), so that it takes us for a person.
class BatonOnTerminal {
 public:
  // `binary` empty: the one that was built.
  explicit BatonOnTerminal(const std::vector<std::string>& arguments, const std::string& binary = "");
  // Kills it if it still runs.
  ~BatonOnTerminal();

  // Types text, of any length; "\x03" is Ctrl-C, "\x04" Ctrl-D.
  void Type(std::string_view text);
  // Reads until `text` has appeared since the last call. False, with what came in seen(), if it ends or takes
  // too long.
  bool WaitFor(std::string_view text);
  // Its exit code, once it has ended.
  int Wait();
  const std::string& seen() const { return seen_; }
  pid_t pid() const { return pid_; }
  // True if the terminal edits and echoes lines by itself, as a shell expects to find it.
  bool IsCooked() const;

 private:
  // Takes what it prints; false at the end, or if nothing came for a minute.
  bool Read();

  int fd_ = -1;
  pid_t pid_ = 0;
  std::string seen_;
  size_t searched_ = 0;
};

}  // namespace baton::cli
