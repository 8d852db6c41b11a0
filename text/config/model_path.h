// Model path: whether a path names a model, and if not, what to do. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton::model {

// OK: a GGUF file (by its name), or a folder with a config.json. NOT_FOUND, naming `path`: nothing is there
// (a name as OWNER/NAME is told how to be fetched), or something that is no model, such as a folder of GGUF
// files or of another format, named as far as it is known.
absl::Status CheckModelPath(const std::string& path);

// CheckModelPath's words if nothing at all is at `path`, else none: what a command line is refused for.
std::string WhyNothingIsAt(const std::string& path);

}  // namespace baton::model
