#include "engine/model/stored_tensor.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "absl/strings/str_join.h"

namespace baton::model {

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
  if (blocks != nullptr) return std::string(blocks->name);
  return integer_bytes == 0 ? std::string(tensor::Name(dtype))
                            : fmt::format("{}{}", unsigned_bytes ? 'u' : 'i', 8 * integer_bytes);
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", absl::StrJoin(shape.begin(), shape.end(), ", "));
}

}  // namespace baton::model
