// PartPrinter: what a person or a pipe sees of an answer in parts. The answer's text, and its calls of tools
// one per line, go to standard output; thinking goes to standard error, so that a pipe gets the answer alone.
// Pure; one answer, one thread at a time.
#pragma once

#include <string>

#include "baton/v1/generation.pb.h"
#include "cli/show/terminal.h"

namespace baton::cli {

class PartPrinter {
 public:
  PartPrinter(const Terminal& out, const Terminal& err) : out_(out), err_(err) {}

  struct Shown {
    std::string out;  // for standard output
    std::string err;  // for standard error, before it
  };
  // Renders the next delta; one without parts as its text.
  Shown Show(const v1::Delta& delta);

 private:
  const Terminal& out_;
  const Terminal& err_;
  v1::PartStart::Kind kind_ = v1::PartStart::KIND_UNSPECIFIED;
  bool line_begun_ = false;     // of standard output
  bool thought_shown_ = false;  // of this part
};

}  // namespace baton::cli
