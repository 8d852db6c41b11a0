// GgufTensors: the weights of a GGUF file under the names that they have in a model folder, as they lie in
// the file. Immutable, any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/stored_tensor.h"
#include "text/gguf/document.h"

namespace baton::model {

class GgufTensors {
 public:
  // Nothing: a folder. Errors as gguf::File::Open has them. What is part of the configuration (divisors of
  // the rope's frequencies) is left out; a tensor that is not known keeps its name.
  static absl::StatusOr<std::optional<GgufTensors>> OpenIfGguf(const std::string& path);

  // Views into the file: they live as long as this.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  explicit GgufTensors(MappedFile mapping) : mapping_(std::move(mapping)) {}

  MappedFile mapping_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace baton::model
