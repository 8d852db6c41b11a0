// bfloat16 weights, widened to float32 as they are multiplied. A panel is stored column by column, as in
// format_f32.cc:
//
//   panel := column[cols],   column := 2 groups of 32 rows,   group := 16 words of 32 bits
//
// The low half of word i is row i of its group, the high half is row i + 16. A shift and a mask make two
// float32 vectors of consecutive rows out of one load, at any vector width.
#include <bit>
#include <cstring>

#include "common/kernels/cpu/format.h"
#include "common/tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/cpu/format_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "common/kernels/cpu/panel_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace baton::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

struct BF16Columns {
  using Value = uint16_t;
  static HWY_INLINE void LoadPair(const uint16_t* column, int first_row, Vec& low, Vec& high) {
    const hn::Repartition<uint32_t, F> words;
    const int first_word = first_row / 32 * 16 + first_row % 16;
    const auto both = hn::LoadU(words, reinterpret_cast<const uint32_t*>(column) + first_word);
    low = hn::BitCast(F(), hn::ShiftLeft<16>(both));
    high = hn::BitCast(F(), hn::And(both, hn::Set(words, 0xFFFF0000u)));
  }
};

}  // namespace

void MultiplyBF16(const PanelProduct& job) { MultiplyPanel<BF16Columns>(job); }

}  // namespace HWY_NAMESPACE
}  // namespace baton::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::kernels::cpu {
namespace {

// Where a row stands in a column, in values: the low half of a word comes first.
static_assert(std::endian::native == std::endian::little);
constexpr int PlaceOf(int row) {
  const int group = row / 32, word = row % 16;
  const bool high = row % 32 >= 16;
  return group * 32 + word * 2 + (high ? 1 : 0);
}

class BF16WeightFormat final : public WeightFormat {
 public:
  std::string_view name() const override { return "bf16"; }
  // bfloat16 is widened without loss: the same chain of float32 multiply-adds.
  std::string_view numerics(Isa isa) const override { return FloatNumerics(isa); }
  bool Takes(const WeightView& part) const override {
    return part.dtype == tensor::DType::kBF16 && !part.quantized();
  }

  int64_t PanelBytes(int64_t cols) const override {
    return cols * kPanelRows * static_cast<int64_t>(sizeof(uint16_t));
  }
  void PackRow(const WeightView& part, int64_t from, std::byte* panel, int row) const override {
    const auto* values = static_cast<const std::byte*>(part.data) + from * part.cols * 2;
    uint16_t* column = reinterpret_cast<uint16_t*>(panel) + PlaceOf(row);
    for (int64_t c = 0; c < part.cols; ++c) {
      std::memcpy(column + c * kPanelRows, values + c * 2, 2);  // which need not be aligned
    }
  }
  void ReadRow(const std::byte* panel, int row, std::span<float> out) const override {
    const uint16_t* column = reinterpret_cast<const uint16_t*>(panel) + PlaceOf(row);
    for (float& value : out) {
      value = tensor::FromBF16(*column);
      column += kPanelRows;
    }
  }
  Product ProductFor(Isa isa) const override { return BATON_FOR_ISA(isa, MultiplyBF16); }
  int Abreast(Isa isa) const override { return FloatAbreast(isa); }
};

}  // namespace

const WeightFormat& BF16Format() {
  static const auto& format = *new BF16WeightFormat;  // threads may use it while the process ends
  return format;
}

}  // namespace baton::kernels::cpu
#endif
