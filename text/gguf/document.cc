#include "text/gguf/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "common/base/lfs_pointer.h"
#include "common/base/quote.h"
#include "common/base/status.h"

namespace baton::gguf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "GGUF", kAlignment = "general.alignment";
constexpr int64_t kMostDimensions = 4, kMostAlignment = 1 << 20;
constexpr uint64_t kMostNameBytes = 65535;  // the format's own limit for keys
constexpr int kMostNesting = 8;             // of arrays in arrays

// Bytes of a value; 0 of those whose length is in the file.
int64_t SizeOf(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kText:
    case ValueType::kArray:
      break;
  }
  return 0;
}

// A place in the file. The first read that does not fit is kept as a failure, and all later ones return
// zeros.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  bool ok() const { return ok_; }
  size_t at() const { return at_; }
  size_t rest() const { return file_.size() - at_; }

  template <typename T>
  T Take() {
    T value = {};
    const std::span<const std::byte> bytes = Bytes(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> Bytes(uint64_t count) {
    if (!ok_ || count > rest()) {
      ok_ = false;
      return {};
    }
    return file_.subspan(std::exchange(at_, at_ + count), count);
  }
  // 8 bytes of length, and the text.
  std::string_view Text() {
    const std::span<const std::byte> bytes = Bytes(Take<uint64_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void Fail() { ok_ = false; }
  std::span<const std::byte> Since(size_t begin) const { return file_.subspan(begin, at_ - begin); }

 private:
  const std::span<const std::byte> file_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Problems of a value; empty: none, though the cursor may have failed.
std::string ReadType(Cursor& cursor, ValueType& type) {
  const auto id = cursor.Take<uint32_t>();
  if (id > static_cast<uint32_t>(ValueType::kF64)) return fmt::format("has type {}, which is not known", id);
  type = static_cast<ValueType>(id);
  return "";
}

std::string SkipItems(Cursor& cursor, ValueType type, uint64_t count, int nesting) {
  if (const auto size = static_cast<uint64_t>(SizeOf(type)); size != 0) {
    if (count > cursor.rest() / size) {
      cursor.Fail();
    } else {
      cursor.Bytes(count * size);
    }
    return "";
  }
  // A text takes 8 bytes at least, an array 12: a false count ends at the end of the file.
  for (uint64_t i = 0; i < count && cursor.ok(); ++i) {
    if (type == ValueType::kText) {
      cursor.Text();
      continue;
    }
    if (nesting >= kMostNesting) return fmt::format("has arrays in arrays more than {} deep", kMostNesting);
    ValueType inner;
    if (std::string problem = ReadType(cursor, inner); !problem.empty()) return problem;
    const auto inner_count = cursor.Take<uint64_t>();
    if (std::string problem = SkipItems(cursor, inner, inner_count, nesting + 1); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string ReadValue(Cursor& cursor, Value& value) {
  if (std::string problem = ReadType(cursor, value.type); !problem.empty()) return problem;
  if (value.type == ValueType::kArray) {
    value.array = true;
    if (std::string problem = ReadType(cursor, value.type); !problem.empty()) return problem;
    value.count = cursor.Take<uint64_t>();
  }
  const size_t begin = cursor.at();
  std::string problem = SkipItems(cursor, value.type, value.count, 0);
  if (cursor.ok()) value.bytes = cursor.Since(begin);
  return problem;
}

// One number at `at`; nothing if the type is none of a number.
std::optional<double> NumberAt(ValueType type, const std::byte* at) {
  const auto as = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case ValueType::kU8:
      return as(uint8_t{});
    case ValueType::kI8:
      return as(int8_t{});
    case ValueType::kU16:
      return as(uint16_t{});
    case ValueType::kI16:
      return as(int16_t{});
    case ValueType::kU32:
      return as(uint32_t{});
    case ValueType::kI32:
      return as(int32_t{});
    case ValueType::kU64:
      return as(uint64_t{});
    case ValueType::kI64:
      return as(int64_t{});
    case ValueType::kF32:
      return as(float{});
    case ValueType::kF64:
      return as(double{});
    default:
      return std::nullopt;
  }
}

// A tensor's entry, whose bytes are yet to be found.
struct Entry {
  Tensor tensor;
  uint64_t offset = 0;  // from the beginning of the data
  uint64_t bytes = 0;
};

// The problem of an entry, without file and name; empty: none, though the cursor may have failed.
std::string ReadEntry(Cursor& cursor, uint64_t alignment, Entry& entry) {
  const auto dimensions = cursor.Take<uint32_t>();
  if (dimensions < 1 || dimensions > kMostDimensions) {
    return cursor.ok() ? fmt::format("has {} dimensions: known are 1 to {}", dimensions, kMostDimensions)
                       : "";
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = cursor.Take<uint64_t>();
    if (extent < 1 || extent > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return cursor.ok() ? fmt::format("has an extent of {}", extent) : "";
    }
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  const auto id = cursor.Take<uint32_t>();
  entry.offset = cursor.Take<uint64_t>();
  if (!cursor.ok()) return "";
  const BlockFormat* const format = FindFormat(id);
  if (format == nullptr) return fmt::format("has type {}, which is not known", id);
  if (format->expand == nullptr) {
    return fmt::format("is stored as {}, which is not read: use {}", format->name, ReadableFormats());
  }
  entry.tensor.format = format;
  const int64_t columns = entry.tensor.shape.back();
  if (columns % format->values != 0) {
    return fmt::format("has rows of {} values, which are no whole blocks of {} of {}", columns,
                       format->values, format->name);
  }
  auto size = static_cast<uint64_t>(columns / format->values);
  bool fits = !__builtin_mul_overflow(size, static_cast<uint64_t>(format->bytes), &size);
  for (size_t i = 0; i + 1 < entry.tensor.shape.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(size, static_cast<uint64_t>(entry.tensor.shape[i]), &size);
  }
  if (!fits || size > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return "has a shape that is more than any file can hold";
  }
  if (entry.offset % alignment != 0) {
    return fmt::format("has offset {}, which is no multiple of the alignment, {}", entry.offset, alignment);
  }
  entry.bytes = size;
  return "";
}

}  // namespace

bool IsGguf(std::string_view path) { return path.ends_with(".gguf"); }

absl::Status Document::Refuse(std::string_view key, std::string_view problem) const {
  return absl::InvalidArgumentError(fmt::format("{}: key {} {}", name_, Quoted(key), problem));
}

absl::StatusOr<Document> Document::Parse(std::span<const std::byte> file, std::string_view name) {
  Document document(name);
  const auto invalid = [name](std::string_view problem) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name, problem));
  };
  const auto truncated = [&](std::string_view within) {
    return invalid(fmt::format("truncated: its {} bytes end within {}", file.size(), within));
  };
  Cursor cursor(file);
  const std::span<const std::byte> magic = cursor.Bytes(kMagic.size());
  if (!cursor.ok() || std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    return invalid("is not a GGUF file: it does not begin with \"GGUF\"");
  }
  const auto version = cursor.Take<uint32_t>();
  if (cursor.ok() && version != 2 && version != 3) {
    // The bytes of a big-endian file's version are the other way round.
    return invalid(fmt::format("is GGUF of {}, which is not read: use version 3, little endian",
                               version != 0 && version % (1 << 24) == 0
                                   ? "big-endian machines"
                                   : fmt::format("version {}", version)));
  }
  const auto tensors = cursor.Take<uint64_t>(), keys = cursor.Take<uint64_t>();
  if (!cursor.ok()) return truncated("its header");

  for (uint64_t i = 0; i < keys; ++i) {
    const std::string_view key = cursor.Text();
    if (!cursor.ok()) return truncated(fmt::format("key {} of {} of the metadata", i + 1, keys));
    if (key.empty() || key.size() > kMostNameBytes) {
      return invalid(fmt::format("key {} of the metadata has {} bytes", i + 1, key.size()));
    }
    Value value;
    const std::string problem = ReadValue(cursor, value);
    if (!problem.empty()) return document.Refuse(key, problem);
    if (!cursor.ok()) return truncated(fmt::format("the value of key {}", Quoted(key)));
    if (!document.metadata_.emplace(key, value).second) return document.Refuse(key, "is there twice");
  }
  BATON_ASSIGN_OR_RETURN(const int64_t alignment, document.Integer(kAlignment, 1, kMostAlignment, 32));
  if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return document.Refuse(kAlignment, fmt::format("is {}, which is no power of two", alignment));
  }

  std::vector<Entry> entries;
  for (uint64_t i = 0; i < tensors; ++i) {
    Entry entry;
    entry.tensor.name = std::string(cursor.Text());
    if (!cursor.ok()) return truncated(fmt::format("tensor {} of {}", i + 1, tensors));
    if (entry.tensor.name.empty() || entry.tensor.name.size() > kMostNameBytes) {
      return invalid(fmt::format("the name of tensor {} has {} bytes", i + 1, entry.tensor.name.size()));
    }
    const std::string shown = Quoted(entry.tensor.name);
    const std::string problem = ReadEntry(cursor, static_cast<uint64_t>(alignment), entry);
    if (!problem.empty()) return invalid(fmt::format("tensor {} {}", shown, problem));
    if (!cursor.ok()) return truncated(fmt::format("the description of tensor {}", shown));
    entries.push_back(std::move(entry));
  }

  const uint64_t padding = -cursor.at() & static_cast<uint64_t>(alignment - 1);
  const std::span<const std::byte> data = file.subspan(std::min(file.size(), cursor.at() + padding));
  std::vector<const Entry*> in_order;
  for (const Entry& entry : entries) in_order.push_back(&entry);
  std::ranges::stable_sort(in_order, {}, [](const Entry* entry) { return entry->offset; });
  uint64_t reached = 0;
  for (const Entry* entry : in_order) {
    const std::string shown = Quoted(entry->tensor.name);
    if (entry->offset < reached) {
      return invalid(
          fmt::format("tensor {} has offset {}, inside the tensor before it", shown, entry->offset));
    }
    if (entry->offset > data.size() || entry->bytes > data.size() - entry->offset) {
      return invalid(fmt::format("truncated: tensor {} has {} bytes from offset {}, and the data has {}",
                                 shown, entry->bytes, entry->offset, data.size()));
    }
    reached = entry->offset + entry->bytes;
  }
  document.tensors_.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.offset, entry.bytes);
    document.tensors_.push_back(std::move(entry.tensor));
  }
  for (size_t i = 0; i < document.tensors_.size(); ++i) {
    if (!document.tensor_index_.emplace(document.tensors_[i].name, i).second) {
      return invalid(fmt::format("tensor {} is there twice", Quoted(document.tensors_[i].name)));
    }
  }
  return document;
}

const Tensor* Document::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const Value* Document::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

absl::StatusOr<int64_t> Document::Integer(std::string_view key, int64_t low, int64_t high,
                                          std::optional<int64_t> fallback) const {
  const Value* const value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Refuse(key, "is missing");
  const bool floating = value->type == ValueType::kF32 || value->type == ValueType::kF64;
  const std::optional<double> number =
      value->array || floating ? std::nullopt : NumberAt(value->type, value->bytes.data());
  if (!number.has_value()) return Refuse(key, "is not an integer");
  // Bounds are far below 2^53, up to which a double is exact.
  if (*number < static_cast<double>(low) || *number > static_cast<double>(high)) {
    return Refuse(key, fmt::format("is {:.0f}: expected {} to {}", *number, low, high));
  }
  return static_cast<int64_t>(*number);
}

absl::StatusOr<double> Document::Number(std::string_view key, std::optional<double> fallback) const {
  const Value* const value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Refuse(key, "is missing");
  const std::optional<double> number =
      value->array ? std::nullopt : NumberAt(value->type, value->bytes.data());
  if (!number.has_value() || !std::isfinite(*number)) return Refuse(key, "is not a finite number");
  return *number;
}

absl::StatusOr<bool> Document::Flag(std::string_view key, std::optional<bool> fallback) const {
  const Value* const value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr) return Refuse(key, "is missing");
  if (value->array || value->type != ValueType::kBool || value->bytes[0] > std::byte{1}) {
    return Refuse(key, "is neither true nor false");
  }
  return value->bytes[0] == std::byte{1};
}

absl::StatusOr<std::string> Document::Text(std::string_view key, std::optional<std::string> fallback) const {
  const Value* const value = Find(key);
  if (value == nullptr && fallback.has_value()) return *std::move(fallback);
  if (value == nullptr) return Refuse(key, "is missing");
  if (value->array || value->type != ValueType::kText) return Refuse(key, "is not a text");
  return std::string(Cursor(value->bytes).Text());
}

absl::StatusOr<std::vector<std::string_view>> Document::Texts(std::string_view key) const {
  std::vector<std::string_view> texts;
  const Value* const value = Find(key);
  if (value == nullptr) return texts;
  if (!value->array || value->type != ValueType::kText) return Refuse(key, "is not an array of texts");
  texts.reserve(value->count);
  Cursor cursor(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) texts.push_back(cursor.Text());
  return texts;
}

absl::StatusOr<std::vector<double>> Document::Numbers(std::string_view key) const {
  std::vector<double> numbers;
  const Value* const value = Find(key);
  if (value == nullptr) return numbers;
  const auto size = static_cast<uint64_t>(SizeOf(value->type));
  if (!value->array || size == 0 || value->type == ValueType::kBool) {
    return Refuse(key, "is not an array of numbers");
  }
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(*NumberAt(value->type, value->bytes.data() + i * size));
  }
  return numbers;
}

absl::StatusOr<File> File::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  BATON_RETURN_IF_ERROR(RefuseLfsPointer(path, mapping.bytes()));
  BATON_ASSIGN_OR_RETURN(Document document, Document::Parse(mapping.bytes(), path));
  return File{std::move(mapping), std::move(document)};
}

absl::StatusOr<std::optional<File>> OpenIfGguf(const std::string& path) {
  if (!IsGguf(path)) return std::nullopt;
  return File::Open(path);
}

}  // namespace baton::gguf
