// Files of deploy/ that the command carries inside: alerting rules and dashboards. Written by the build
// (cmake/Embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace baton::cli {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

const std::vector<EmbeddedFile>& EmbeddedFiles();

}  // namespace baton::cli
