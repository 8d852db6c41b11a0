#include "engine/kv/store/i4_vector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace baton::kv {
namespace {

// The standard deviation of the distribution that the levels are for: 127 is its outermost one, 2.7326.
constexpr double kDeviation = 46.476;

// A number goes to the level above the middle of two.
constexpr std::array<double, 7> kMiddles = {12, 24.5, 37.5, 51, 66.5, 85.5, 111.5};

uint8_t CodeOf(double value) {
  int above = 0;
  for (const double middle : kMiddles) above += std::abs(value) > middle;
  return static_cast<uint8_t>(value < 0 ? 7 - above : 8 + above);
}

}  // namespace

void Rotate(float* vector, int dim) {
  const int run = dim & -dim;
  for (int distance = 1; distance < run; distance *= 2) {
    for (int first = 0; first < dim; first += 2 * distance) {
      float* const low = vector + first;
      float* const high = low + distance;
      for (int i = 0; i < distance; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(run)));
  for (int i = 0; i < dim; ++i) vector[i] *= scale;
}

float EncodeI4(const float* vector, int dim, I4Vector& codes) {
  BATON_DCHECK(dim > 0 && dim % 8 == 0 && dim <= kMostI4Dim);
  std::array<float, kMostI4Dim> rotated;
  std::copy_n(vector, dim, rotated.begin());
  Rotate(rotated.data(), dim);
  double squares = 0;
  for (int i = 0; i < dim; ++i)
    squares += double{rotated[static_cast<size_t>(i)]} * rotated[static_cast<size_t>(i)];
  const double rms = std::sqrt(squares / dim);
  const bool broken = !std::isfinite(rms);
  if (broken || rms < kTiny) {
    std::fill_n(codes.begin(), dim, uint8_t{8});
    return broken ? std::numeric_limits<float>::quiet_NaN() : 0;
  }
  const double by = kDeviation / rms;
  double fit = 0;
  int64_t levels = 0;
  for (int i = 0; i < dim; ++i) {
    const double value = rotated[static_cast<size_t>(i)];
    const uint8_t code = CodeOf(value * by);
    const int level = kI4Levels[code];
    codes[static_cast<size_t>(i)] = code;
    fit += value * level;
    levels += level * level;
  }
  return static_cast<float>(fit / static_cast<double>(levels));
}

}  // namespace baton::kv
