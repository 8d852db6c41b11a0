#include "engine/model/column_exponents.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/digest.h"

namespace baton::model {

int8_t ExponentOf(float mean_square) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(mean_square) >> 23 & 0xFF) - 127;
  return static_cast<int8_t>((std::clamp(exponent, -60, 60) + 4) >> 3);
}

void ColumnExponents::Set(std::span<const std::string> tensors, std::vector<int8_t> exponents) {
  const auto shared = std::make_shared<const std::vector<int8_t>>(std::move(exponents));
  for (const std::string& tensor : tensors) of_[tensor] = shared;
}

const int8_t* ColumnExponents::Of(std::string_view tensor) const {
  const auto found = of_.find(tensor);
  return found == of_.end() ? nullptr : found->second->data();
}

std::string ColumnExponents::Digest() const {
  if (of_.empty()) return {};
  Sha256 sha;
  for (const auto& [tensor, exponents] : of_) {
    sha.Update(tensor);
    sha.Update({reinterpret_cast<const char*>(exponents->data()), exponents->size()});
  }
  const Sha256Digest digest = sha.Finish();
  return {digest.begin(), digest.end()};
}

}  // namespace baton::model
