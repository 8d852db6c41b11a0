// Isa: the instruction sets that the cpu backend is compiled for, in one binary. The vector code is written
// once, in Highway; each of its files is compiled per instruction set, and BATON_FOR_ISA picks the function
// of one of them, so that two backends in one process can use different ones (that is how tests compare
// them). Pure functions, any thread.
#pragma once

#include <hwy/detect_targets.h>

#include <string_view>

#include "absl/status/statusor.h"

namespace baton::kernels::cpu {

enum class Isa {
  kBaseline,    // what every machine of the architecture has
  kAvx2,        // with FMA
  kAvx512,      // F, BW, CD, DQ, VL
  kAvx512Vnni,  // and products of bytes, and those of bfloat16 (AVX512_BF16) where they are there and faster
  kAmx,         // and tiles of bytes and of bfloat16, for products of several rows (amx.h)
};

// "baseline", "avx2", "avx512", "avx512vnni", "amx".
std::string_view Name(Isa isa);

bool Supported(Isa isa);

// The class of rounding of float32 multiply-adds: all instruction sets that round a multiply-add once share
// one; the baseline may lack it, rounds twice and has a class of its own.
std::string_view FloatNumerics(Isa isa);

// By name, or the fastest one for "". INVALID_ARGUMENT if the name is unknown, or the machine lacks it. The
// first call tries AMX, where the processor has it.
absl::StatusOr<Isa> ChooseIsa(std::string_view name);

}  // namespace baton::kernels::cpu

// `function` of the namespace of an instruction set, or of the baseline where the build lacks it.
#if HWY_TARGETS & HWY_AVX3
#define BATON_IN_AVX512(function) N_AVX3::function
#else
#define BATON_IN_AVX512(function) HWY_STATIC_DISPATCH(function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define BATON_IN_AVX2(function) N_AVX2::function
#else
#define BATON_IN_AVX2(function) HWY_STATIC_DISPATCH(function)
#endif

// The one switch over instruction sets: the address of `function` as compiled for `isa`. In namespace
// baton::kernels::cpu, in the part of a file that Highway compiles once (HWY_ONCE).
#define BATON_FOR_ISA(isa, function)                                         \
  ((isa) >= ::baton::kernels::cpu::Isa::kAvx512 ? &BATON_IN_AVX512(function) \
   : (isa) == ::baton::kernels::cpu::Isa::kAvx2 ? &BATON_IN_AVX2(function)   \
                                                : &HWY_STATIC_DISPATCH(function))

// In front of each loop over vectors that are to stay in registers: where one of them stays a loop, they live
// in memory.
#if defined(__clang__)
#define BATON_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define BATON_UNROLLED _Pragma("GCC unroll 16")
#endif
