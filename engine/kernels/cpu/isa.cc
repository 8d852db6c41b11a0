#include "engine/kernels/cpu/isa.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/amx.h"

namespace baton::kernels::cpu {
namespace {

bool HasVnni() {
#if HWY_ARCH_X86_64
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

}  // namespace

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

bool Supported(Isa isa) {
  const int64_t usable = HWY_TARGETS & hwy::SupportedTargets();
  switch (isa) {
    case Isa::kBaseline:
      return true;
    case Isa::kAvx2:
      return (usable & HWY_AVX2) != 0;
    case Isa::kAvx512:
      return (usable & HWY_AVX3) != 0;
    case Isa::kAvx512Vnni:
      return (usable & HWY_AVX3) != 0 && HasVnni();
    case Isa::kAmx:
      return Supported(Isa::kAvx512Vnni) && Amx().usable;
  }
  return false;
}

std::string_view FloatNumerics(Isa isa) { return isa == Isa::kBaseline ? "cpu-f32-unfused/1" : "cpu-f32/1"; }

absl::StatusOr<Isa> ChooseIsa(std::string_view name) {
  for (Isa isa : {Isa::kAmx, Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAvx2, Isa::kBaseline}) {
    if (name.empty() && isa == Isa::kAmx && !Amx().faster) continue;
    if (name.empty() ? Supported(isa) : name == Name(isa)) {
      if (Supported(isa)) return isa;
      return absl::InvalidArgumentError(
          fmt::format("this machine has no {}: leave the choice open, or use baseline", name));
    }
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown instruction set \"{}\": use amx, avx512vnni, avx512, avx2 or baseline", name));
}

}  // namespace baton::kernels::cpu
