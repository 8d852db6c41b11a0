#include "engine/model/stored_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace baton::model {
namespace {

struct TypeFacts {
  std::string_view safetensors, name;
  int bytes;
};

// In the order of StoredType.
constexpr TypeFacts kTypes[] = {{"F32", "f32", 4},    {"F16", "f16", 2}, {"BF16", "bf16", 2},
                                {"F8_E4M3", "f8", 1}, {"I8", "i8", 1},   {"U8", "u8", 1},
                                {"I32", "i32", 4},    {"I64", "i64", 8}, {"", "", 0}};
static_assert(std::size(kTypes) == static_cast<size_t>(StoredType::kBlocks) + 1);

const TypeFacts& FactsOf(StoredType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view SafetensorsName(StoredType type) { return FactsOf(type).safetensors; }

int64_t SizeOf(StoredType type) { return FactsOf(type).bytes; }

std::optional<StoredType> StoredTypeOf(std::string_view safetensors_name) {
  const auto* const found = std::ranges::find(kTypes, safetensors_name, &TypeFacts::safetensors);
  if (found == std::end(kTypes) || safetensors_name.empty()) return std::nullopt;
  return static_cast<StoredType>(found - std::begin(kTypes));
}

tensor::DType StoredTensor::dtype() const {
  switch (type) {
    case StoredType::kF32:
      return tensor::DType::kF32;
    case StoredType::kF16:
      return tensor::DType::kF16;
    case StoredType::kBF16:
      return tensor::DType::kBF16;
    default:
      BATON_CHECK(type == StoredType::kF8) << name << " is stored as " << TypeName();
      return tensor::DType::kF8;
  }
}

int64_t StoredTensor::values() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

int64_t StoredTensor::FileRow(int64_t row) const {
  if (paired_heads == 0) return row;
  const int64_t head_rows = shape[0] / paired_heads, half = head_rows / 2;
  const int64_t head = row / head_rows, in_head = row % head_rows;
  return head * head_rows + in_head % half * 2 + in_head / half;
}

std::string StoredTensor::TypeName() const {
  return std::string(type == StoredType::kBlocks ? blocks->name : FactsOf(type).name);
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", absl::StrJoin(shape.begin(), shape.end(), ", "));
}

}  // namespace baton::model
