// Files of the golden tests of texts, which Python wrote, beside them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "text/chat_template.h"

namespace baton::text {

using Json = ChatTemplate::Json;

inline const std::string kFolder = std::string(BATON_SOURCE_DIR) + "/tests/golden/text/";

inline std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace baton::text
