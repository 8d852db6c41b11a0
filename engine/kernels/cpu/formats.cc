#include <algorithm>

#include "engine/kernels/cpu/format.h"

namespace baton::kernels::cpu {

const WeightFormat& FormatFor(std::span<const WeightView> parts) {
  const auto same = [&](const WeightView& part) {
    return SameTransform(part.quantization.transform, parts[0].quantization.transform, part.cols);
  };
  if (!std::ranges::all_of(parts, same)) return F32Format();
  // The best first.
  for (const WeightFormat* format : {&BF16Format(), &I4Format(), &I8Format()}) {
    if (std::ranges::all_of(parts, [&](const WeightView& part) { return format->Takes(part); }))
      return *format;
  }
  return F32Format();
}

}  // namespace baton::kernels::cpu
