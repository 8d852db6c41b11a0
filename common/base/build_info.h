// The source that this binary was built from. Written by the build (cmake/BuildInfo.cmake).
#pragma once

namespace baton {

struct BuildInfo {
  const char* version;
  // Abbreviated hash, with "+" if the tree had changes; "unknown" outside git.
  const char* commit;
  const char* build_type;
  const char* compiler;
};

BuildInfo GetBuildInfo();

}  // namespace baton
