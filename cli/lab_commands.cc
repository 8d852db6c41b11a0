#include "cli/lab_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "cli/exit_code.h"

namespace baton::cli {

int HandOver(const std::string& binary_folder, int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (std::ranges::none_of(kLabCommands, [&](const LabCommand& one) { return name == one.name; }))
    return kExitOk;
  const std::string path = binary_folder + "/baton-lab";
  execv(path.c_str(), argv);
  return Fail("`baton " + std::string(name) + "` is run by " + path + ": " + std::strerror(errno) +
              ". Install it beside baton");
}

}  // namespace baton::cli
