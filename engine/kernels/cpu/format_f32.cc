// float32 weights. A panel is stored column by column (an input feature of all 64 rows, side by side), so
// that one pass through it reads memory in order, once:
//
//   panel := column[cols],   column := 64 floats, value i of row i
#include <vector>

#include "engine/kernels/cpu/format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/format_f32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/panel_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

struct F32Columns {
  using Value = float;
  static HWY_INLINE void LoadPair(const float* column, int first_row, Vec& low, Vec& high) {
    low = hn::LoadU(F(), column + first_row);
    high = hn::LoadU(F(), column + first_row + 16);
  }
};

}  // namespace

void MultiplyF32(const PanelProduct& job) { MultiplyPanel<F32Columns>(job); }

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

class F32WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "f32"; }
  std::string_view numerics(Isa isa) const override { return FloatNumerics(isa); }
  bool Takes(const WeightView&) const override { return true; }

  int64_t PanelBytes(int64_t cols) const override {
    return cols * kPanelRows * static_cast<int64_t>(sizeof(float));
  }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    float* column = reinterpret_cast<float*>(panel) + row;
    if (part.quantization.transform.none()) {
      for (int64_t c = 0; c < part.cols; ++c) column[c * kPanelRows] = ValueAt(part, from, c);
      return;
    }
    std::vector<float> numbers(static_cast<size_t>(part.cols));
    kernels::ReadRow(part, from, numbers);
    for (const float number : numbers) {
      *column = number;
      column += kPanelRows;
    }
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const float* column = reinterpret_cast<const float*>(panel) + row;
    for (float& value : out) {
      value = *column;
      column += kPanelRows;
    }
  }
  Product ProductFor(Isa isa) const override { return BATON_FOR_ISA(isa, MultiplyF32); }
  int Abreast(Isa isa) const override { return isa >= Isa::kAvx512 ? kFloatPanelsAbreast : 1; }
};

}  // namespace

const WeightFormat& F32Format() {
  static const auto& format = *new F32WeightFormat;  // threads may use it while the process ends
  return format;
}

}  // namespace baton::kernels::cpu
#endif
