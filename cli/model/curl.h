// Curl: one download by the `curl` program, which knows proxies, certificates and resumption, and is what the
// chart's pods pull with. Blocking. Secrets go to it by a pipe: a command line can be read by others.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton::cli {

struct Download {
  std::string url;
  // Written to; what is there already is kept, and the rest asked for.
  std::string file;
  // Bearer token; empty: none.
  std::string token;
  // Show curl's progress bar on standard error.
  bool progress = false;
};

// NOT_FOUND if there is no `curl`; UNAVAILABLE, naming the address, if the download failed (curl has said why
// on standard error).
absl::Status Curl(const Download& download);

}  // namespace baton::cli
