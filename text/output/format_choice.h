// Which format a model's template writes. A conversation with thinking and calls is rendered, what the
// template writes for the answer is read by the parser of each format, and a format is chosen if it finds
// what was put in. So a format that can't read its own model's template is never chosen. Names of models play
// no part.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "text/chat_template.h"
#include "text/output/output_format.h"
#include "text/output/probe_chat.h"
#include "text/tokenizer.h"

namespace baton::output {

struct FormatChoice {
  const OutputFormat* format = nullptr;  // never null; "none" if nothing fits
  bool tools = false;                    // calls come back as they were put in
  bool thinking = false;                 // so does thinking, or the prompt opens it
  CallStyle calls = {};                  // how earlier calls go into the template
};

// Renders and parses some hundred short conversations at most.
FormatChoice ChooseFormat(std::shared_ptr<const text::Tokenizer> tokenizer,
                          const text::ChatTemplate& chat_template);
// The same for one format, which an operator named: what works with this template.
FormatChoice TryFormat(const OutputFormat& format, std::shared_ptr<const text::Tokenizer> tokenizer,
                       const text::ChatTemplate& chat_template);

}  // namespace baton::output
