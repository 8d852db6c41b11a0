// Runs the real `baton` binary, or a server's, as a user or a script would. One thread at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace baton::cli {

struct Outcome {
  // -1: killed by a signal.
  int code = -1;
  std::string out;
  std::string err;
};

// Runs `baton ARGUMENTS` to its end with `input` on standard input.
Outcome RunBaton(const std::vector<std::string>& arguments, std::string_view input = "");
// The same with another binary of the build, "baton-router".
Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                   std::string_view input = "");

// `baton` on a terminal of its own, so that it takes us for a person.
class BatonOnTerminal {
 public:
  explicit BatonOnTerminal(const std::vector<std::string>& arguments);
  // Kills it if it still runs.
  ~BatonOnTerminal();

  // Types text; "\x03" is Ctrl-C, "\x04" Ctrl-D.
  void Type(std::string_view text);
  // Reads until `text` has appeared since the last call. False, with what came in seen(), if it ends or takes
  // too long.
  bool WaitFor(std::string_view text);
  // Its exit code, once it has ended.
  int Wait();
  const std::string& seen() const { return seen_; }

 private:
  int fd_ = -1;
  pid_t pid_ = 0;
  std::string seen_;
  size_t searched_ = 0;
};

}  // namespace baton::cli
