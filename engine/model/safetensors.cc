#include "engine/model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/base/lfs_pointer.h"
#include "common/base/status.h"
#include "text/config/json_fields.h"

namespace baton::model {
namespace {

// The reference implementation's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kLengthBytes = 8;

absl::Status Invalid(std::string_view file, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", file, problem));
}

// A tensor of the header, with offsets still relative to the end of the header.
struct HeaderEntry {
  StoredTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

bool IsSize(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

absl::StatusOr<StoredType> ReadDType(const Json& entry) {
  const auto found = entry.find("dtype");
  if (found == entry.end() || !found->is_string()) return absl::InvalidArgumentError("has no dtype");
  if (const auto type = StoredTypeOf(found->get_ref<const std::string&>()); type.has_value()) return *type;
  return absl::InvalidArgumentError(
      fmt::format("has dtype {}, which is not known: use F32, F16 or BF16, or F8_E4M3, I8, U8, I32 or I64 of "
                  "quantized weights",
                  Shown(*found)));
}

// Errors lack file and tensor name, which the caller adds.
absl::StatusOr<HeaderEntry> ReadEntry(const std::string& name, const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("is not described by a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::InvalidArgumentError(fmt::format("has an unknown field \"{}\"", key));
    }
  }
  HeaderEntry entry;
  entry.tensor.name = name;
  BATON_ASSIGN_OR_RETURN(entry.tensor.type, ReadDType(json));

  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return absl::InvalidArgumentError("has no shape");
  uint64_t bytes = static_cast<uint64_t>(SizeOf(entry.tensor.type));
  for (const Json& extent : *shape) {
    if (!IsSize(extent)) return absl::InvalidArgumentError(fmt::format("has shape {}", Shown(*shape)));
    entry.tensor.shape.push_back(extent.get<int64_t>());
    if (__builtin_mul_overflow(bytes, extent.get<uint64_t>(), &bytes)) {
      return absl::InvalidArgumentError(
          fmt::format("has shape {}, more than any file can hold", Shown(*shape)));
    }
  }

  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 || !IsSize((*offsets)[0]) ||
      !IsSize((*offsets)[1]) || (*offsets)[0].get<uint64_t>() > (*offsets)[1].get<uint64_t>()) {
    return absl::InvalidArgumentError(
        fmt::format("has data_offsets {}: expected [begin, end] with begin <= end",
                    offsets == json.end() ? "nowhere" : Shown(*offsets)));
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.end - entry.begin != bytes) {
    return absl::InvalidArgumentError(
        fmt::format("has data_offsets {} of {} bytes, but shape {} of {} takes {}", Shown(*offsets),
                    entry.end - entry.begin, ShapeText(entry.tensor.shape), entry.tensor.TypeName(), bytes));
  }
  return entry;
}

// Metadata is text for people; nothing in it is used. MLX writes null where it has none.
absl::Status CheckMetadata(const Json& metadata, std::string_view file) {
  if (metadata.is_null()) return absl::OkStatus();
  if (!metadata.is_object()) return Invalid(file, "__metadata__ is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) return Invalid(file, fmt::format("__metadata__ \"{}\" is not a string", key));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HeaderEntry>> ReadHeader(std::string_view text, std::string_view file) {
  if (text.empty() || text.front() != '{') return Invalid(file, "the header does not begin with \"{\"");
  BATON_ASSIGN_OR_RETURN(const Json header, ParseJson(text, fmt::format("{}: header", file)));
  std::vector<HeaderEntry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      BATON_RETURN_IF_ERROR(CheckMetadata(json, file));
      continue;
    }
    absl::StatusOr<HeaderEntry> entry = ReadEntry(name, json);
    if (!entry.ok())
      return Invalid(file, fmt::format("tensor \"{}\" {}", name, std::string(entry.status().message())));
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::span<const std::byte> file,
                                                           std::string_view name) {
  if (file.size() < kLengthBytes) {
    return Invalid(name,
                   fmt::format("truncated: needs at least {} bytes, has {}", kLengthBytes, file.size()));
  }
  uint64_t header_bytes = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return Invalid(
        name, fmt::format("states a header of {} bytes, more than the {} allowed: not a safetensors file?",
                          header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    return Invalid(
        name,
        fmt::format("truncated: a header of {} bytes needs a file of at least {} bytes, this one has {}",
                    header_bytes, header_bytes + kLengthBytes, file.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes);
  BATON_ASSIGN_OR_RETURN(std::vector<HeaderEntry> entries, ReadHeader(text, name));

  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  const uint64_t needed =
      std::accumulate(entries.begin(), entries.end(), uint64_t{0},
                      [](uint64_t most, const HeaderEntry& e) { return std::max(most, e.end); });
  if (needed > data.size()) {
    return Invalid(
        name,
        fmt::format("truncated: the header asks for {} bytes of tensors, the file has {} after its header",
                    needed, data.size()));
  }
  std::vector<StoredTensor> tensors;
  tensors.reserve(entries.size());
  uint64_t reached = 0;
  for (HeaderEntry& entry : entries) {
    if (entry.begin != reached) {
      return Invalid(
          name,
          fmt::format("tensor \"{}\" begins at offset {}, {}: expected {}", entry.tensor.name, entry.begin,
                      entry.begin < reached ? "inside the tensor before it" : "after a hole", reached));
    }
    reached = entry.end;
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  if (reached != data.size()) {
    return Invalid(name, fmt::format("has {} bytes after its last tensor", data.size() - reached));
  }
  return tensors;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  BATON_RETURN_IF_ERROR(RefuseLfsPointer(path, mapping.bytes()));
  SafetensorsFile file(std::move(mapping));
  file.mapping_.WillRead();
  BATON_ASSIGN_OR_RETURN(file.tensors_, ParseSafetensors(file.mapping_.bytes(), path));
  return file;
}

}  // namespace baton::model
