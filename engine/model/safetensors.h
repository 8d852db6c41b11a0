// Safetensors: one *.safetensors file, mapped read-only and checked whole before anything is believed
// (https://github.com/huggingface/safetensors, "Format"): 8 bytes of little-endian header length, a JSON
// header, then the tensors' bytes without hole or overlap. What the header says about dtype, shape and
// offsets must agree with itself and with the file's size. Immutable once open, any thread. The file must not
// shrink while it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mapped_file.h"
#include "common/tensor/dtype.h"
#include "text/gguf/block_format.h"

namespace baton::model {

// A tensor as it lies in a file. The bytes may be unaligned for the dtype.
struct StoredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  // Bytes of a value, if it is an integer (I8, U8, I32, I64): dtype is kI8 then. Else 0.
  int integer_bytes = 0;
  bool unsigned_bytes = false;  // U8, which is read as I8 is
  // Format of a GGUF file's rows of blocks; dtype is kI8 then. Else null.
  const gguf::BlockFormat* blocks = nullptr;
  // In a GGUF file, the rows of each of so many heads lie in pairs, row i of the first half of the head
  // before row i of its second half. 0: all rows are in order.
  int64_t paired_heads = 0;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // exactly shape x ValueBytes, but of blocks

  int64_t ValueBytes() const { return integer_bytes != 0 ? integer_bytes : tensor::SizeOf(dtype); }
  // How many, by the shape.
  int64_t values() const;
  // Where row `row` of the tensor lies in the file: among shape[0] rows, which paired heads divide.
  int64_t FileRow(int64_t row) const;
  // "bf16", "i32", "q4_k".
  std::string TypeName() const;
};

// "[2048, 64]"
std::string ShapeText(std::span<const int64_t> shape);

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
