// Tokens from logits, as sampling::Sampler draws them (draw.h), one block of threads per row.
//
// What top-k, top-p and min-p keep is a head of the tokens' order each, and so is what they keep together: the
// mass of that head says all, and nothing is sorted. The place in the order where a mass or a count is reached
// is found digit by digit (radix selection), the first digit being the distance to the largest logit, because
// logits crowd into few exponents. Masses are fixed-point numbers: their sums have the same bits in any order
// of additions, so a draw is a function of the row, its parameters and what was counted alone.
//
// Counts are one word per token of the vocabulary: how often the output has it, and a bit for the prompt.
#include <bit>
#include <cfloat>
#include <cmath>

#include "common/kernels/cuda/device_math.cuh"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

using Mass = unsigned long long;  // the type that atomics know

constexpr int kThreads = 512;
constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
constexpr int kIdBits = 23;
constexpr int kRankDigits = 5;  // of a rank: 32 bits of logit, then the id
static_assert(32 + kIdBits == kRankDigits * kDigitBits && kMaxSampledVocabulary <= 1 << kIdBits);
// Mass of the likeliest token. All tokens together stay below 2^64.
constexpr double kOne = 0x1p43;
static_assert(kMaxSampledVocabulary <= 1 << 20);
constexpr uint32_t kInPrompt = 1u << 31;  // of a count
// Beyond this distance below the largest logit, in units of the temperature, a mass rounds to 0.
constexpr double kFarthest = 32;

struct Row {
  const float* logits;
  int vocabulary;
  double max;
  double inverse_temperature;
};

// As the sampler reads them: infinity is the largest number; NaN and -inf have no mass.
__device__ float LogitAt(const Row& row, int id) { return row.logits[id] > FLT_MAX ? FLT_MAX : row.logits[id]; }

// The place in the order, smaller first: descending logits, then ascending ids.
__device__ Mass RankOf(float logit, int id) {
  const auto bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0f : logit);  // -0 is no less than 0
  const uint32_t descending = (bits >> 31) != 0 ? bits : bits ^ 0x7FFFFFFFu;
  return static_cast<Mass>(descending) << kIdBits | static_cast<Mass>(id);
}

// (max - logit) / temperature; NaN for NaN.
__device__ double DistanceOf(const Row& row, float logit) {
  return (row.max - static_cast<double>(logit)) * row.inverse_temperature;
}

__device__ Mass MassAt(double distance) {
  return distance < kFarthest ? static_cast<Mass>(exp(-distance) * kOne + 0.5) : 0;
}

// The tokens among which a place is sought: all, those of one distance, those whose ranks begin alike.
struct Among {
  int digits = 0;  // fixed so far: that of the distance, then those of the rank
  int distance_digit = 0;
  Mass rank = 0;  // its leading digits

  __device__ static int DistanceDigit(double distance) { return static_cast<int>(distance * (kBins / kFarthest)); }
  __device__ static int LeftOf(int digits) { return (kRankDigits + 1 - digits) * kDigitBits; }
  __device__ bool Has(double distance, Mass own) const {
    return digits == 0 || (DistanceDigit(distance) == distance_digit && own >> LeftOf(digits) == rank);
  }
  __device__ int NextDigit(double distance, Mass own) const {
    return digits == 0 ? DistanceDigit(distance) : static_cast<int>(own >> LeftOf(digits + 1)) & (kBins - 1);
  }
  __device__ void Fix(int digit) {
    if (digits++ == 0) {
      distance_digit = digit;
    } else {
      rank = rank << kDigitBits | static_cast<Mass>(digit);
    }
  }
};

// Reached by the first token of the order with which the mass exceeds `mass`, or the count is `count`.
struct Goal {
  Mass mass = ~Mass{0};
  unsigned count = ~0u;

  __device__ bool Reached(Mass mass_so_far, unsigned count_so_far) const {
    return mass_so_far > mass || count_so_far >= count;
  }
};

constexpr int kRuns = 64;  // of bins, summed up side by side
constexpr int kRunBins = kBins / kRuns;

struct Shared {
  Mass mass[kBins];
  Mass run_mass[kRuns];
  unsigned count[kBins];
  unsigned run_count[kRuns];
  // Found by one thread, for all.
  Mass best, sum;
  Mass passed_mass;
  unsigned passed_count, found_count;
  int digit;
  int token;
};

struct Place {
  Among among;        // the one token, if the goal was reached
  Mass mass = 0;      // up to it, with it
  bool reached = false;
};

// Every thread of the block, with the same arguments.
__device__ Place Seek(const Row& row, Goal goal, Shared& shared) {
  Place place;
  Mass passed_mass = 0;
  unsigned passed_count = 0;
  while (true) {
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) shared.mass[b] = shared.count[b] = 0;
    __syncthreads();
    for (int id = static_cast<int>(threadIdx.x); id < row.vocabulary; id += kThreads) {
      const float logit = LogitAt(row, id);
      const double distance = DistanceOf(row, logit);
      if (!(distance < kFarthest)) continue;
      const Mass rank = RankOf(logit, id);
      if (!place.among.Has(distance, rank)) continue;
      const Mass mass = MassAt(distance);
      if (mass == 0) continue;
      const int digit = place.among.NextDigit(distance, rank);
      atomicAdd(&shared.mass[digit], mass);
      atomicAdd(&shared.count[digit], 1u);
    }
    __syncthreads();
    if (threadIdx.x < kRuns) {
      Mass mass = 0;
      unsigned count = 0;
      for (int b = static_cast<int>(threadIdx.x) * kRunBins; b < (static_cast<int>(threadIdx.x) + 1) * kRunBins; ++b) {
        mass += shared.mass[b];
        count += shared.count[b];
      }
      shared.run_mass[threadIdx.x] = mass;
      shared.run_count[threadIdx.x] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int run = 0;
      while (run < kRuns && !goal.Reached(passed_mass + shared.run_mass[run], passed_count + shared.run_count[run])) {
        passed_mass += shared.run_mass[run];
        passed_count += shared.run_count[run++];
      }
      int digit = run * kRunBins;
      while (digit < kBins && !goal.Reached(passed_mass + shared.mass[digit], passed_count + shared.count[digit])) {
        passed_mass += shared.mass[digit];
        passed_count += shared.count[digit++];
      }
      shared.passed_mass = passed_mass;
      shared.passed_count = passed_count;
      shared.digit = digit;
    }
    __syncthreads();
    passed_mass = shared.passed_mass;
    passed_count = shared.passed_count;
    if (shared.digit == kBins) break;  // the whole row is less
    place.among.Fix(shared.digit);
    const bool single = shared.count[shared.digit] == 1;
    const Mass own = shared.mass[shared.digit];
    __syncthreads();
    if (!single) continue;
    place.reached = true;
    passed_mass += own;
    break;
  }
  place.mass = passed_mass;
  __syncthreads();
  return place;
}

// One thread block per penalty slot that is cleared.
__global__ void __launch_bounds__(kThreads)
    CountSeenKernel(const SeenRun* seen, const int32_t* tokens, int vocabulary, uint32_t* counts) {
  const SeenRun run = seen[blockIdx.x];
  uint32_t* const own = counts + static_cast<int64_t>(run.slot) * vocabulary;
  for (int id = static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads) own[id] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < run.prompt + run.output; i += kThreads) {
    uint32_t& count = own[tokens[run.first + i]];
    if (i < run.prompt) {
      atomicOr(&count, kInPrompt);
    } else {
      atomicAdd(&count, 1u);
    }
  }
}

// As sampling::Sampler adjusts a row, to the bit: products and sums are rounded one by one, and what overflows is read
// as the largest number (LogitAt), from which no penalty takes anything. `counts` are the row's slot's.
__device__ void Adjust(float* logits, int vocabulary, const RowDraw& draw, const uint32_t* counts,
                       const TokenBias* biases) {
  if (draw.slot >= 0) {
    for (int id = static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads) {
      const uint32_t seen = counts[id];
      if (seen == 0) continue;
      float logit = logits[id] > FLT_MAX ? FLT_MAX : logits[id];
      logit = logit < 0 ? __fmul_rn(logit, draw.repetition_penalty) : __fdiv_rn(logit, draw.repetition_penalty);
      if (const uint32_t count = seen & ~kInPrompt; count > 0) {
        const float often = __fmul_rn(draw.frequency_penalty, static_cast<float>(count));
        logit = __fsub_rn(logit, __fadd_rn(draw.presence_penalty, often));
      }
      logits[id] = logit;
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < draw.bias_count; i += kThreads) {
    const TokenBias bias = biases[draw.first_bias + i];
    float& logit = logits[bias.token];
    logit = __fadd_rn(logit, bias.bias);
  }
  if (draw.bias_count > 0) __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(float* logits, int64_t stride, int vocabulary, const RowDraw* draws, const TokenBias* biases,
               uint32_t* counts, int32_t* tokens) {
  __shared__ Shared shared;
  const RowDraw draw = draws[blockIdx.x];
  uint32_t* const seen = draw.slot < 0 ? nullptr : counts + static_cast<int64_t>(draw.slot) * vocabulary;
  Adjust(logits + draw.row * stride, vocabulary, draw, seen, biases);
  const auto give = [&](int token) {
    tokens[blockIdx.x] = token;
    if (seen != nullptr && token >= 0) ++seen[token];
  };
  Row row{logits + draw.row * stride, vocabulary, 0, 1 / static_cast<double>(draw.temperature)};

  if (threadIdx.x == 0) {
    shared.best = ~Mass{0};
    shared.sum = 0;
  }
  __syncthreads();
  Mass best = ~Mass{0};
  for (int id = static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads) {
    const float logit = LogitAt(row, id);
    if (!(logit >= -FLT_MAX)) continue;  // -inf or NaN
    const Mass rank = RankOf(logit, id);
    best = rank < best ? rank : best;
  }
  atomicMin(&shared.best, best);
  __syncthreads();
  best = shared.best;
  const int likeliest = static_cast<int>(best & ((Mass{1} << kIdBits) - 1));
  if (best == ~Mass{0} || draw.temperature == 0) {
    if (threadIdx.x == 0) give(best == ~Mass{0} ? -1 : likeliest);
    return;
  }
  row.max = LogitAt(row, likeliest);

  Goal first_k;
  if (draw.top_k > 0) first_k.count = static_cast<unsigned>(draw.top_k);
  Mass kept = Seek(row, first_k, shared).mass;
  if (draw.top_p < 1) {
    const double enough = ceil(static_cast<double>(draw.top_p) * static_cast<double>(kept));
    Goal head;
    head.mass = enough > 1 ? static_cast<Mass>(enough) - 1 : 0;
    kept = Seek(row, head, shared).mass;
  }
  if (draw.min_p > 0) {
    Mass sum = 0;
    for (int id = static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads) {
      const double distance = DistanceOf(row, LogitAt(row, id));
      if (distance < kFarthest && exp(-distance) >= static_cast<double>(draw.min_p)) sum += MassAt(distance);
    }
    atomicAdd(&shared.sum, sum);
    __syncthreads();
    kept = shared.sum < kept ? shared.sum : kept;
  }

  Goal drawn;
  drawn.mass = static_cast<Mass>(draw.uniform * static_cast<double>(kept));
  drawn.mass = drawn.mass < kept ? drawn.mass : kept - 1;  // where the product was rounded up
  const Among among = Seek(row, drawn, shared).among;
  for (int id = static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads) {
    const float logit = LogitAt(row, id);
    const double distance = DistanceOf(row, logit);
    if (distance < kFarthest && MassAt(distance) > 0 && among.Has(distance, RankOf(logit, id))) {
      give(id);
    }
  }
}

}  // namespace

void CountSeen(const DrawView& draws, int vocabulary, uint32_t* counts, cudaStream_t stream) {
  if (draws.seen_count == 0) return;
  CountSeenKernel<<<static_cast<unsigned>(draws.seen_count), kThreads, 0, stream>>>(draws.seen, draws.tokens, vocabulary,
                                                                                    counts);
  CheckLaunch("count seen tokens");
}

void Draw(float* logits, int64_t stride, int vocabulary, const DrawView& draws, uint32_t* counts, int32_t* tokens,
          cudaStream_t stream) {
  if (draws.row_count == 0) return;
  DrawKernel<<<static_cast<unsigned>(draws.row_count), kThreads, 0, stream>>>(logits, stride, vocabulary, draws.rows,
                                                                              draws.biases, counts, tokens);
  CheckLaunch("draw");
}

}  // namespace baton::kernels::cuda
