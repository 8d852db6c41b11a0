// `baton model pull`: fetches a model's folder, or one GGUF file, from Hugging Face (or a mirror with its
// interface) at one commit, checks what the server states of them, and says the SHA-256 of each, as the
// chart's values want them. Blocking; one thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

struct PullOptions {
  std::string repository;  // "Qwen/Qwen3-8B"
  std::string revision;    // a branch, a tag or a commit
  std::string folder;      // made if needed
  std::string file;        // a GGUF file that is the model; empty: the folder is
  std::string endpoint;
  std::string token;  // empty: a public repository
  bool progress = false;
};

// INVALID_ARGUMENT: a repository, revision, file or endpoint that can't be one.
absl::Status CheckPull(const PullOptions& options);

struct RemoteFile {
  std::string name;
  std::string sha256;  // as the server states it; empty: it does not
};

// The server's listing of a repository at a revision.
struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;  // of the model
};

// `file`: as PullOptions has it. INVALID_ARGUMENT if it is not what Hugging Face answers, or has no such
// model; it names the GGUF files that there are.
absl::StatusOr<Listing> ParseListing(std::string_view json, std::string_view file);

struct Pulled {
  std::string commit;
  std::map<std::string, std::string> sha256;  // by file
};

// For options that CheckPull accepts. `say` is called for each file. A file whose stated SHA-256 is that of
// the one in the folder is not fetched again, and an interrupted download is continued. DATA_LOSS: a file is
// not what the server states; it is removed.
absl::StatusOr<Pulled> Pull(const PullOptions& options, const std::function<void(const std::string&)>& say);

// The chart's values for this model, YAML.
std::string ChartValues(const PullOptions& options, const Pulled& pulled);

}  // namespace baton::cli
