// How a command gets a relay of its own when it is given a model folder instead of a server: main() passes in
// a function that starts one, so that commands link neither router nor workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton::cli {

struct LocalRelayOptions {
  std::string model_folder;
  // Per worker; 0 takes the worker's default.
  int threads = 0;
  int64_t kv_bytes = 0;
  // "cpu" or "reference".
  std::string backend = "cpu";
  // As the worker's --weights.
  std::string weights = "stored";
  // As the workers' --expert-file and --expert-memory.
  std::string expert_file = {};
  int64_t expert_memory = 0;
  // Called while a worker converts its weights, with values so far and of all; workers load one after the
  // other. May be empty.
  std::function<void(const std::string& worker, int64_t done, int64_t all)> progress;
};

struct LocalRelay {
  // The router's address.
  std::string address;
  // The relay ends with it.
  std::shared_ptr<void> keep;
};

using StartLocalRelay = std::function<absl::StatusOr<LocalRelay>(const LocalRelayOptions&)>;

}  // namespace baton::cli
