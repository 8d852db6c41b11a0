// ServedModels: which models one `baton serve` serves, and by which workers. Pure, but for the file of
// --models that it reads. That file is the router's (router/models_file.h), with workers to start in place of
// addresses:
//
//   {"models": [{"folder": "/srv/qwen", ...,
//                "workers": {"prefill": 1, "decode": 2,          absent: as many as --prefill and --decode
//                say
//                            "flags": ["--kv-memory=2GiB"],      in place of those of one name that all have
//                            "prefill_flags": [...], "decode_flags": [...]}}]}
//
// A model whose folder an earlier one has, and that says nothing of workers, is another name of that one,
// with limits of its own. A classifier that says nothing of workers has one small decode worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::cli {

struct ServedModel {
  std::string folder;  // or a GGUF file
  std::string name;    // for clients
  // The place of the model that it is another name of; what follows is that one's then.
  std::optional<size_t> same_as = {};
  int prefill = 1;
  int decode = 1;
  // Stands in the names of its processes, "decode-qwen-0"; empty: "decode-0".
  std::string process = {};
  // The name of its one process, in place of that.
  std::string sole_process = {};
  // Its workers have the flags that `baton serve` hands to all workers.
  bool common_flags = true;
  // "--name=value" or "--name", of its workers; and of those of one role.
  std::vector<std::string> flags = {}, prefill_flags = {}, decode_flags = {};
  // GPUs, by worker (DeviceShares). Empty: none is named.
  std::vector<std::vector<int>> prefill_devices = {}, decode_devices = {};
  // The file says how many workers it has.
  bool counted = false;
  bool classifier = false;
  // Its entry in the router's file, but for the addresses of its workers. Null: the router's flags name it.
  nlohmann::json entry = {};
};

struct ServedModels {
  std::vector<ServedModel> models;  // at least one; the first is the default
  // The file's rules for answers of all tenants; null: none.
  nlohmann::json moderation = {};
};

// The part of the command line that names models.
struct ModelFlags {
  std::vector<std::string> folders;
  // The names of the folders, in their order, or all names of a single one. Empty: each is named as its
  // folder or file.
  std::vector<std::string> names;
  std::string output_format;  // of a single folder; empty: found by the model's template
  std::string file;           // of --models; empty: none
  std::string classifier;  // folder of a classifier with one small worker, named kModeratorName; empty: none
  // As many workers as a model has that says nothing else.
  int prefill = 1;
  int decode = 1;
};

inline constexpr char kModeratorName[] = "moderator";

// INVALID_ARGUMENT: the flags by themselves contradict one another.
absl::Status CheckModelFlags(const ModelFlags& flags);

// `flags` passed CheckModelFlags. INVALID_ARGUMENT: the file is refused, with the place and what to do, or
// two models have one name. NOT_FOUND: there is no such file, or no model at a folder.
absl::StatusOr<ServedModels> ReadServedModels(const ModelFlags& flags);

struct ServedWorker {
  size_t model = 0;  // its place
  bool decode = false;
  size_t of_role = 0;  // its place among the model's workers of this role
  std::string name;    // "prefill-0", "decode-qwen-1"
};

// INVALID_ARGUMENT: `arguments`, flags of workers, have one that `baton serve` sets for each worker.
absl::Status CheckWorkerFlags(const std::vector<std::string>& arguments);

// The prefill workers of all models, then the decode workers, then classifiers with one process of a name.
std::vector<ServedWorker> WorkersOf(const std::vector<ServedModel>& models);

}  // namespace baton::cli
