// Floats that are no numbers.
#pragma once

#include <limits>

namespace baton::sampling {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace baton::sampling
