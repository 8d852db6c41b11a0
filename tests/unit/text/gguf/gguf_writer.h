// GgufWriter: writes GGUF files for tests, right ones and, by its public members, wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/gguf/document.h"

namespace baton::gguf {

class GgufWriter {
 public:
  GgufWriter& Put(std::string_view key, ValueType type, std::string_view bytes);
  GgufWriter& Text(std::string_view key, std::string_view text);
  GgufWriter& U32(std::string_view key, uint32_t value);
  GgufWriter& F32(std::string_view key, float value);
  GgufWriter& Bool(std::string_view key, bool value);
  GgufWriter& Texts(std::string_view key, const std::vector<std::string>& texts);
  GgufWriter& Floats(std::string_view key, const std::vector<float>& values);
  GgufWriter& Integers(std::string_view key, const std::vector<int32_t>& values);
  // `shape` as in a model folder, the fastest dimension last.
  GgufWriter& Tensor(std::string_view name, const std::vector<int64_t>& shape, uint32_t format,
                     std::string_view bytes);
  std::string Bytes() const;

  uint32_t version = 3;
  uint64_t alignment = 32;                   // Put general.alignment, too
  uint64_t more_tensors = 0, more_keys = 0;  // that the header claims
  int64_t shift = 0;                         // of the last tensor's offset

 private:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t format;
    std::string bytes;
  };
  std::string metadata_;
  uint64_t keys_ = 0;
  std::vector<Entry> tensors_;
};

// The bytes of a number, and a text with its length, as they lie in a file.
template <typename T>
std::string BytesOf(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string TextBytes(std::string_view text);

}  // namespace baton::gguf
