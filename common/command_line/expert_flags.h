// The flags of experts outside memory (docs/experts.md), for everything that loads a model.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton::command_line {

// --expert-file and --expert-memory, which go together. Both outlive the parse.
std::array<CLI::Option*, 2> AddExpertFlags(CLI::App& app, std::string& file, int64_t& memory);

}  // namespace baton::command_line
