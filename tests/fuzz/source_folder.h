// Where files of the source tree are. One object knows the folder (source_folder.cc), so that the compiler
// cache serves the others in any clone. Fuzzers stay in the folder that they were started in: their corpora
// are paths relative to it.
#pragma once

#include <string>

namespace baton::fuzz {

// `path` is relative to the source folder; the result is absolute.
std::string InSource(const char* path);

}  // namespace baton::fuzz
