// Checkpoint: all tensors of a model folder, from `model.safetensors` or from the shards that
// `model.safetensors.index.json` names; or of a GGUF file, under the names that they have in a folder. Index
// and shards must agree tensor by tensor. Immutable, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/safetensors.h"

namespace baton::model {

class Checkpoint {
 public:
  // A folder or a file. Errors name the file and, for a missing shard, who asked for it.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  // Null if there is no such tensor.
  const StoredTensor* Find(std::string_view name) const;
  // By name.
  const std::map<std::string, const StoredTensor*, std::less<>>& tensors() const { return tensors_; }
  // Bytes of all tensors, as stored.
  int64_t bytes() const;

  // SHA-256 (32 bytes) over the tensors in order of name: name, dtype, shape and bytes of each, lengths
  // included. How they are spread over files does not count. Reads everything once.
  std::string Digest() const;

 private:
  absl::Status Add(const std::vector<StoredTensor>& tensors, const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::optional<GgufTensors> gguf_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;  // into files_ or gguf_
};

}  // namespace baton::model
