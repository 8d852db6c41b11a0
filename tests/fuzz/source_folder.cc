#include "tests/fuzz/source_folder.h"

namespace baton::fuzz {

std::string InSource(const char* path) { return std::string(BATON_SOURCE_FOLDER "/") + path; }

}  // namespace baton::fuzz
