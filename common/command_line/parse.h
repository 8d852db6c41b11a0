// How every Baton binary reads its command line: one form of help, --version, errors that say what is wrong
// and what was probably meant, and exit code 2 for misuse. For main() only.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace baton::command_line {

// Exit code if the command line is wrong.
inline constexpr int kExitMisused = 2;

// Adds --version, parses into what the options of `app` (and of its commands) are bound to. Returns the exit
// code if the process is over: 0 after help or the version, which are on standard output; kExitMisused after
// a misuse, which standard error explains. `app` has a name.
std::optional<int> Parse(CLI::App& app, int argc, const char* const* argv);

// --help of `app` shows these of its options, and --help-all the rest as well. Call it once they are all
// declared; all of them are.
void ShowFirst(CLI::App& app, const std::vector<std::string>& names);

// Prints on standard error why options that are each valid contradict one another. Returns kExitMisused.
int Misused(const CLI::App& app, const std::string& message);

}  // namespace baton::command_line
