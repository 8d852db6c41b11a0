// The page that the gateway serves to people (--page), as it stands in this folder. Written by the build
// (cmake/Embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace baton::gateway {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

const std::vector<EmbeddedFile>& EmbeddedFiles();

}  // namespace baton::gateway
