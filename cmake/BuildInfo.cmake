# Writes ${OUTPUT}, the source of common/base/build_info.h, at build time; unchanged content keeps its timestamp, so that nothing
# is relinked needlessly. Run as: cmake -D OUTPUT= -D SOURCE= -D VERSION= -D BUILD_TYPE= -D COMPILER= -P BuildInfo.cmake
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff --quiet HEAD ERROR_QUIET RESULT_VARIABLE changed)
    set(commit ${head})
    if(changed)
      string(APPEND commit "+")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "common/base/build_info.h"

namespace baton {

BuildInfo GetBuildInfo() { return {"@VERSION@", "@commit@", "@BUILD_TYPE@", "@COMPILER@"}; }

}  // namespace baton
]] @ONLY)
