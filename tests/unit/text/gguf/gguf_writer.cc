#include "tests/unit/text/gguf/gguf_writer.h"

namespace baton::gguf {

std::string TextBytes(std::string_view text) { return BytesOf(uint64_t{text.size()}) + std::string(text); }

GgufWriter& GgufWriter::Put(std::string_view key, ValueType type, std::string_view bytes) {
  metadata_ += TextBytes(key) + BytesOf(type) + std::string(bytes);
  ++keys_;
  return *this;
}

GgufWriter& GgufWriter::Text(std::string_view key, std::string_view text) {
  return Put(key, ValueType::kText, TextBytes(text));
}
GgufWriter& GgufWriter::U32(std::string_view key, uint32_t value) {
  return Put(key, ValueType::kU32, BytesOf(value));
}
GgufWriter& GgufWriter::F32(std::string_view key, float value) {
  return Put(key, ValueType::kF32, BytesOf(value));
}
GgufWriter& GgufWriter::Bool(std::string_view key, bool value) {
  return Put(key, ValueType::kBool, BytesOf(value));
}

GgufWriter& GgufWriter::Texts(std::string_view key, const std::vector<std::string>& texts) {
  std::string bytes = BytesOf(ValueType::kText) + BytesOf(uint64_t{texts.size()});
  for (const std::string& text : texts) bytes += TextBytes(text);
  return Put(key, ValueType::kArray, bytes);
}
GgufWriter& GgufWriter::Floats(std::string_view key, const std::vector<float>& values) {
  std::string bytes = BytesOf(ValueType::kF32) + BytesOf(uint64_t{values.size()});
  for (const float value : values) bytes += BytesOf(value);
  return Put(key, ValueType::kArray, bytes);
}
GgufWriter& GgufWriter::Integers(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = BytesOf(ValueType::kI32) + BytesOf(uint64_t{values.size()});
  for (const int32_t value : values) bytes += BytesOf(value);
  return Put(key, ValueType::kArray, bytes);
}

GgufWriter& GgufWriter::Tensor(std::string_view name, const std::vector<int64_t>& shape, uint32_t format,
                               std::string_view bytes) {
  tensors_.push_back({std::string(name), shape, format, std::string(bytes)});
  return *this;
}

std::string GgufWriter::Bytes() const {
  std::string header = "GGUF" + BytesOf(version) + BytesOf(tensors_.size() + more_tensors) +
                       BytesOf(keys_ + more_keys) + metadata_;
  std::string data;
  const auto pad = [this](std::string& bytes) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  };
  for (const Entry& tensor : tensors_) {
    header += TextBytes(tensor.name) + BytesOf(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) header += BytesOf(tensor.shape[i - 1]);
    const int64_t moved = &tensor == &tensors_.back() ? shift : 0;
    header += BytesOf(tensor.format) + BytesOf(static_cast<int64_t>(data.size()) + moved);
    data += tensor.bytes;
    pad(data);
  }
  pad(header);
  return header + data;
}

}  // namespace baton::gguf
