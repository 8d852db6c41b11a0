// Explain: error messages for a wrong command line. For parse.cc.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace baton::command_line {

// `app` has just thrown `error`. One or two whole lines: what is wrong, with the known word that was probably
// meant, and which help to read.
std::string Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace baton::command_line
