// Safetensors: one *.safetensors file, mapped read-only and checked whole before anything is believed
// (https://github.com/huggingface/safetensors, "Format"): 8 bytes of little-endian header length, a JSON
// header, then the tensors' bytes without hole or overlap. What the header says about dtype, shape and
// offsets must agree with itself and with the file's size. Immutable once open, any thread. The file must not
// shrink while it is mapped.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mapped_file.h"
#include "engine/model/stored_tensor.h"

namespace baton::model {

// Reads `file`, the bytes of a whole file; tensors are views into it, in the order of their bytes. `name`
// opens messages. INVALID_ARGUMENT for anything that the format forbids, and for dtypes other than F32, F16,
// BF16, F8_E4M3, I8, U8, I32 and I64.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::span<const std::byte> file,
                                                           std::string_view name);

class SafetensorsFile {
 public:
  // Messages name `path`. NOT_FOUND if there is no such file.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // Views into the mapping: they live as long as this.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(MappedFile mapping) : mapping_(std::move(mapping)) {}

  MappedFile mapping_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace baton::model
