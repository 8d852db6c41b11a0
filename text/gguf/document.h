// Document: what a GGUF file says (https://github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little
// endian): metadata by key, and tensors. Counts, lengths, types and offsets are checked against one another
// and against the file's size before anything is believed or allocated. It holds views into the file's bytes,
// which outlive it. Immutable, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mapped_file.h"
#include "text/gguf/block_format.h"

namespace baton::gguf {

// True if a model's name is that of a GGUF file: it ends with ".gguf". What is in it, Document says.
bool IsGguf(std::string_view path);

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

// A value of the metadata.
struct Value {
  ValueType type = ValueType::kU8;   // kArray: of an array of arrays
  bool array = false;                // then `type` is that of its items
  uint64_t count = 1;                // items
  std::span<const std::byte> bytes;  // as they lie in the file; of texts with their lengths
};

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;  // the one that changes slowest first, unlike in the file: [rows, columns]
  const BlockFormat* format;   // one that is read
  std::span<const std::byte> bytes;  // exactly shape.back() columns x all rows
};

class Document {
 public:
  // `file` are the bytes of a whole file; `name` opens messages. INVALID_ARGUMENT names the key or the tensor
  // that is not as the format has it, or in a format that is not read.
  static absl::StatusOr<Document> Parse(std::span<const std::byte> file, std::string_view name);

  const std::string& name() const { return name_; }
  const std::map<std::string_view, Value>& metadata() const { return metadata_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Null if there is no such tensor.
  const Tensor* FindTensor(std::string_view name) const;

  bool Has(std::string_view key) const { return metadata_.contains(key); }
  // The value of a key. INVALID_ARGUMENT, with file and key, if it has another type or is out of range, or is
  // missing and there is no fallback. Integers of any width count as integers, and as numbers.
  absl::StatusOr<int64_t> Integer(std::string_view key, int64_t low, int64_t high,
                                  std::optional<int64_t> fallback = {}) const;
  absl::StatusOr<double> Number(std::string_view key, std::optional<double> fallback = {}) const;
  absl::StatusOr<bool> Flag(std::string_view key, std::optional<bool> fallback = {}) const;
  absl::StatusOr<std::string> Text(std::string_view key, std::optional<std::string> fallback = {}) const;
  // Arrays, whole. A missing one is empty.
  absl::StatusOr<std::vector<std::string_view>> Texts(std::string_view key) const;
  absl::StatusOr<std::vector<double>> Numbers(std::string_view key) const;

  // INVALID_ARGUMENT: "FILE: key "KEY" PROBLEM".
  absl::Status Refuse(std::string_view key, std::string_view problem) const;

 private:
  explicit Document(std::string_view name) : name_(name) {}

  const Value* Find(std::string_view key) const;

  std::string name_;
  std::map<std::string_view, Value> metadata_;
  std::vector<Tensor> tensors_;                      // in the order of the file
  std::map<std::string_view, size_t> tensor_index_;  // into tensors_
};

// A document with the file that it is of.
struct File {
  MappedFile mapping;
  Document document;

  // NOT_FOUND if there is no such file; else as Document::Parse says.
  static absl::StatusOr<File> Open(const std::string& path);
};

// The GGUF file that a model is, by its name; nothing: it is a folder.
absl::StatusOr<std::optional<File>> OpenIfGguf(const std::string& path);

}  // namespace baton::gguf
