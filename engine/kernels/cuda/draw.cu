// Tokens from logits, as sampling::Sampler draws them (draw.h), in three kernels. Many blocks per row adjust
// the row and find its largest logit (BestKernel); as many sum up masses by distance to it (HistogramKernel);
// one block per row answers all questions from those sums (DrawKernel). Greedy rows end in the first.
//
// Each of top-k, top-p and min-p keeps a head of the tokens' order, and so do they together: the mass of that
// head says all, and nothing is sorted. The place in the order where a mass or a count is reached is found
// digit by digit (radix selection). The first digit is the distance to the largest logit, because logits
// crowd into few exponents: the histogram says which it is, and the tokens that have it are listed in one
// pass over the row. The digits that follow are found in that list, or, where it is too long, in the row.
// Masses are fixed-point numbers: their sums have the same bits in any order of additions, so a draw is a
// function of the row, its parameters and what was counted alone.
//
// Counts are one word per token of the vocabulary: how often the output has it, and a bit for the prompt.
#include <bit>
#include <cfloat>
#include <cmath>

#include "engine/kernels/cuda/device_math.cuh"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/launch_check.h"

namespace baton::kernels::cuda {
namespace {

using Mass = unsigned long long;  // the type that atomics know

constexpr int kThreads = 512;                      // of DrawKernel
constexpr int kPartThreads = 256;                  // of the kernels that share a row
constexpr int kPartValues = 16;                    // per thread, loaded together
constexpr int kPart = kPartThreads * kPartValues;  // tokens
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

// State of a row that the kernels of a draw share.
struct RowState {
  Mass running;      // ~RankOf of the best token so far; 0 between draws, as `arrived`
  unsigned arrived;  // blocks
  Mass best;         // ~RankOf of the best token; 0: there is none
  Mass mass[kBins];  // by distance
  unsigned count[kBins];
};
static_assert(sizeof(RowState) <= kDrawStateBytes && kDrawStateBytes % 16 == 0);

struct Row {
  const float* logits;
  int vocabulary;
  double max;
  double inverse_temperature;
};

// As the sampler reads them: infinity is the largest number; NaN and -inf have no mass.
__device__ float LogitAt(const Row& row, int id) {
  return row.logits[id] > FLT_MAX ? FLT_MAX : row.logits[id];
}

// The place in the order, smaller first: descending logits, then ascending ids.
__device__ Mass RankOf(float logit, int id) {
  const auto bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0f : logit);  // -0 is no less than 0
  const uint32_t descending = (bits >> 31) != 0 ? bits : bits ^ 0x7FFFFFFFu;
  return static_cast<Mass>(descending) << kIdBits | static_cast<Mass>(id);
}

__device__ int IdOf(Mass rank) { return static_cast<int>(rank & ((Mass{1} << kIdBits) - 1)); }

// But for the sign of 0.
__device__ float LogitOf(Mass rank) {
  const auto descending = static_cast<uint32_t>(rank >> kIdBits);
  return std::bit_cast<float>((descending >> 31) != 0 ? descending : descending ^ 0x7FFFFFFFu);
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

  __device__ static int DistanceDigit(double distance) {
    return static_cast<int>(distance * (kBins / kFarthest));
  }
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

// A sum of masses in shared memory, whose atomics of 64 bits are loops.
struct SplitMass {
  unsigned low, high;

  __device__ void Clear() { low = high = 0; }
  __device__ void Add(Mass mass) {
    const auto added = static_cast<unsigned>(mass);
    const unsigned carry = atomicAdd(&low, added) + added < added ? 1 : 0;
    if (const unsigned upper = static_cast<unsigned>(mass >> 32) + carry; upper != 0) atomicAdd(&high, upper);
  }
  __device__ Mass Get() const { return static_cast<Mass>(high) << 32 | low; }
};

constexpr int kRuns = 64;  // of bins, summed up side by side
constexpr int kRunBins = kBins / kRuns;
constexpr unsigned kListed = 2048;  // tokens of one distance, at most

struct Shared {
  // Runs of the histogram of distances.
  Mass run_mass[kRuns];
  unsigned run_count[kRuns];
  // Bins and runs of the digits of a rank.
  SplitMass mass[kBins];
  unsigned count[kBins];
  Mass digit_run_mass[kRuns];
  unsigned digit_run_count[kRuns];
  // One run of either, for the thread that looks for the digit in it.
  Mass bin_mass[kRunBins];
  unsigned bin_count[kRunBins];
  // The ranks of the tokens of one distance; -1: of none.
  Mass list[kListed];
  int list_digit;
  unsigned list_size;
  // Found by one thread, for all.
  SplitMass sum;
  Mass passed_mass;
  unsigned passed_count;
  int run, digit;
};

struct Place {
  Among among;    // the one token, if the goal was reached
  Mass mass = 0;  // up to it, with it
  bool reached = false;
};

// Calls f(rank, distance) for every token of the row that has a mass, some values of a thread at once.
template <typename F>
__device__ void ForTokens(const Row& row, F f) {
  constexpr int kValues = 8;
  for (int first = static_cast<int>(threadIdx.x); first < row.vocabulary; first += kThreads * kValues) {
    float logits[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int id = first + i * kThreads;
      logits[i] = id < row.vocabulary ? LogitAt(row, id) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const double distance = DistanceOf(row, logits[i]);
      if (distance < kFarthest) f(RankOf(logits[i], first + i * kThreads), distance);
    }
  }
}

// Finds the digit with which the goal is reached, given the sums over all runs (for one thread to walk
// through) and what was passed before them: into shared.digit, or kBins. `bin(b, mass, count)` reads a bin.
template <typename Bin>
__device__ void FindDigit(Goal goal, const Mass* run_mass, const unsigned* run_count, Bin bin,
                          Shared& shared) {
  if (threadIdx.x == 0) {
    Mass mass = shared.passed_mass;
    unsigned count = shared.passed_count;
    int run = 0;
    while (run < kRuns && !goal.Reached(mass + run_mass[run], count + run_count[run])) {
      mass += run_mass[run];
      count += run_count[run++];
    }
    shared.passed_mass = mass;
    shared.passed_count = count;
    shared.run = run;
  }
  __syncthreads();
  const int run = shared.run;
  if (run < kRuns && threadIdx.x < kRunBins) {
    const int at = static_cast<int>(threadIdx.x);
    bin(run * kRunBins + at, shared.bin_mass[at], shared.bin_count[at]);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int at = run < kRuns ? 0 : kRunBins;
    while (at < kRunBins && !goal.Reached(shared.passed_mass + shared.bin_mass[at],
                                          shared.passed_count + shared.bin_count[at])) {
      shared.passed_mass += shared.bin_mass[at];
      shared.passed_count += shared.bin_count[at++];
    }
    shared.digit = at < kRunBins ? run * kRunBins + at : kBins;
  }
  __syncthreads();
}

// Lists the tokens of a distance, unless they are listed or too many. Whether they are.
__device__ bool List(const Row& row, int digit, unsigned count, Shared& shared) {
  if (count > kListed) return false;
  if (shared.list_digit == digit) return true;
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.list_digit = digit;
    shared.list_size = 0;
  }
  __syncthreads();
  ForTokens(row, [&](Mass rank, double distance) {
    if (Among::DistanceDigit(distance) != digit || MassAt(distance) == 0) return;
    shared.list[atomicAdd(&shared.list_size, 1u)] = rank;
  });
  __syncthreads();
  return true;
}

// Calls f(rank, distance) for every token of the distance of `among`, from the list or from the row.
template <typename F>
__device__ void ForListed(const Row& row, bool listed, const Among& among, const Shared& shared, F f) {
  if (!listed) {
    ForTokens(row, [&](Mass rank, double distance) {
      if (among.Has(distance, rank)) f(rank, distance);
    });
    return;
  }
  for (unsigned i = threadIdx.x; i < shared.list_size; i += kThreads) {
    const Mass rank = shared.list[i];
    const double distance = DistanceOf(row, LogitOf(rank));
    if (among.Has(distance, rank)) f(rank, distance);
  }
}

// Every thread of the block, with the same arguments. The runs of the histogram are summed up in `shared`.
__device__ Place Seek(const Row& row, const RowState& state, Goal goal, Shared& shared) {
  Place place;
  __syncthreads();
  if (threadIdx.x == 0) shared.passed_mass = shared.passed_count = 0;
  const auto of_histogram = [&](int b, Mass& mass, unsigned& count) {
    mass = state.mass[b];
    count = state.count[b];
  };
  FindDigit(goal, shared.run_mass, shared.run_count, of_histogram, shared);
  bool listed = false;
  while (true) {
    place.mass = shared.passed_mass;
    const int digit = shared.digit;
    if (digit == kBins) return place;  // the whole row is less
    place.among.Fix(digit);
    const unsigned count = shared.bin_count[digit % kRunBins];
    if (count == 1) {
      place.mass += shared.bin_mass[digit % kRunBins];
      place.reached = true;
      return place;
    }
    if (place.among.digits == 1) listed = List(row, digit, count, shared);
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) {
      shared.mass[b].Clear();
      shared.count[b] = 0;
    }
    __syncthreads();
    ForListed(row, listed, place.among, shared, [&](Mass rank, double distance) {
      const Mass mass = MassAt(distance);
      if (mass == 0) return;
      const int next = place.among.NextDigit(distance, rank);
      shared.mass[next].Add(mass);
      atomicAdd(&shared.count[next], 1u);
    });
    __syncthreads();
    const auto of_digits = [&](int b, Mass& mass, unsigned& own) {
      mass = shared.mass[b].Get();
      own = shared.count[b];
    };
    if (threadIdx.x < kRuns) {
      Mass mass = 0;
      unsigned own = 0;
      for (int b = static_cast<int>(threadIdx.x) * kRunBins;
           b < (static_cast<int>(threadIdx.x) + 1) * kRunBins; ++b) {
        mass += shared.mass[b].Get();
        own += shared.count[b];
      }
      shared.digit_run_mass[threadIdx.x] = mass;
      shared.digit_run_count[threadIdx.x] = own;
    }
    __syncthreads();
    FindDigit(goal, shared.digit_run_mass, shared.digit_run_count, of_digits, shared);
  }
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

// As sampling::Sampler adjusts tokens [begin, end) of a row, to the bit: products and sums are rounded one by
// one, and what overflows is read as the largest number (LogitAt), from which no penalty takes anything.
// `counts` are the row's slot's.
__device__ void Adjust(float* logits, int begin, int end, const RowDraw& draw, const uint32_t* counts,
                       const TokenBias* biases, const uint32_t* masks) {
  if (draw.slot >= 0) {
    for (int id = begin + static_cast<int>(threadIdx.x); id < end; id += kPartThreads) {
      const uint32_t seen = counts[id];
      if (seen == 0) continue;
      float logit = logits[id] > FLT_MAX ? FLT_MAX : logits[id];
      logit =
          logit < 0 ? __fmul_rn(logit, draw.repetition_penalty) : __fdiv_rn(logit, draw.repetition_penalty);
      if (const uint32_t count = seen & ~kInPrompt; count > 0) {
        const float often = __fmul_rn(draw.frequency_penalty, static_cast<float>(count));
        logit = __fsub_rn(logit, __fadd_rn(draw.presence_penalty, often));
      }
      logits[id] = logit;
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < draw.bias_count; i += kPartThreads) {
    const TokenBias bias = biases[draw.first_bias + i];
    if (bias.token < begin || bias.token >= end) continue;
    float& logit = logits[bias.token];
    logit = __fadd_rn(logit, bias.bias);
  }
  if (draw.bias_count > 0) __syncthreads();
  if (draw.mask_words == 0) return;
  const uint32_t* const mask = masks + draw.first_mask;
  for (int id = begin + static_cast<int>(threadIdx.x); id < end; id += kPartThreads) {
    const uint32_t word = id / 32 < draw.mask_words ? mask[id / 32] : 0;
    if ((word >> (id % 32) & 1) == 0) logits[id] = -INFINITY;
  }
  __syncthreads();
}

struct Draws {
  float* logits;
  int64_t stride;
  int vocabulary;
  const RowDraw* rows;
  const TokenBias* biases;
  const uint32_t* masks;
  uint32_t* counts;
  int32_t* tokens;
  std::byte* states;

  __device__ RowState& StateOf(unsigned draw) const {
    return *reinterpret_cast<RowState*>(states + draw * static_cast<int64_t>(kDrawStateBytes));
  }
  __device__ float* LogitsOf(const RowDraw& draw) const { return logits + draw.row * stride; }
  __device__ uint32_t* CountsOf(const RowDraw& draw) const {
    return draw.slot < 0 ? nullptr : counts + static_cast<int64_t>(draw.slot) * vocabulary;
  }
  // One thread.
  __device__ void Give(unsigned draw, int token) const {
    tokens[draw] = token;
    if (uint32_t* const seen = CountsOf(rows[draw]); seen != nullptr && token >= 0) ++seen[token];
  }
};

// Grid: parts of a row, rows. The last block of a row to arrive knows the best of all.
__global__ void __launch_bounds__(kPartThreads) BestKernel(Draws draws) {
  __shared__ Mass best_of[kPartThreads];
  const RowDraw draw = draws.rows[blockIdx.y];
  RowState& state = draws.StateOf(blockIdx.y);
  float* const logits = draws.LogitsOf(draw);
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x) * kPart;
  const int end = begin + kPart < draws.vocabulary ? begin + kPart : draws.vocabulary;
  // For the next kernel.
  for (int b = static_cast<int>(blockIdx.x) * kPartThreads + thread; b < kBins;
       b += static_cast<int>(gridDim.x) * kPartThreads) {
    state.mass[b] = 0;
    state.count[b] = 0;
  }
  Adjust(logits, begin, end, draw, draws.CountsOf(draw), draws.biases, draws.masks);
  float values[kPartValues];
#pragma unroll
  for (int i = 0; i < kPartValues; ++i) {
    const int id = begin + i * kPartThreads + thread;
    values[i] = id < end ? logits[id] : -INFINITY;
  }
  Mass best = 0;
#pragma unroll
  for (int i = 0; i < kPartValues; ++i) {
    const float logit = values[i] > FLT_MAX ? FLT_MAX : values[i];
    if (!(logit >= -FLT_MAX)) continue;  // -inf or NaN
    const Mass own = ~RankOf(logit, begin + i * kPartThreads + thread);
    best = own > best ? own : best;
  }
  best_of[thread] = best;
  for (int half = kPartThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half && best_of[thread + half] > best_of[thread]) best_of[thread] = best_of[thread + half];
  }
  if (thread != 0) return;
  atomicMax(&state.running, best_of[0]);
  __threadfence();
  if (atomicAdd(&state.arrived, 1u) + 1 < gridDim.x) return;
  __threadfence();
  state.best = atomicMax(&state.running, Mass{0});
  state.running = 0;
  state.arrived = 0;
  if (state.best == 0) {
    draws.Give(blockIdx.y, -1);
  } else if (draw.temperature == 0) {
    draws.Give(blockIdx.y, IdOf(~state.best));
  }
}

__device__ bool Ended(const RowDraw& draw, const RowState& state) {
  return state.best == 0 || draw.temperature == 0;
}

__device__ Row RowOf(const Draws& draws, const RowDraw& draw, const RowState& state) {
  return {draws.LogitsOf(draw), draws.vocabulary, static_cast<double>(LogitOf(~state.best)),
          1 / static_cast<double>(draw.temperature)};
}

// Grid: parts of a row, rows.
__global__ void __launch_bounds__(kPartThreads) HistogramKernel(Draws draws) {
  __shared__ SplitMass mass_of[kBins];
  __shared__ unsigned count_of[kBins];
  const RowDraw draw = draws.rows[blockIdx.y];
  RowState& state = draws.StateOf(blockIdx.y);
  if (Ended(draw, state)) return;
  const Row row = RowOf(draws, draw, state);
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x) * kPart;
  for (int b = thread; b < kBins; b += kPartThreads) {
    mass_of[b].Clear();
    count_of[b] = 0;
  }
  float values[kPartValues];
#pragma unroll
  for (int i = 0; i < kPartValues; ++i) {
    const int id = begin + i * kPartThreads + thread;
    values[i] = id < row.vocabulary ? LogitAt(row, id) : -INFINITY;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPartValues; ++i) {
    const double distance = DistanceOf(row, values[i]);
    if (!(distance < kFarthest)) continue;
    const Mass mass = MassAt(distance);
    if (mass == 0) continue;
    const int digit = Among::DistanceDigit(distance);
    mass_of[digit].Add(mass);
    atomicAdd(&count_of[digit], 1u);
  }
  __syncthreads();
  for (int b = thread; b < kBins; b += kPartThreads) {
    if (count_of[b] == 0) continue;
    atomicAdd(&state.mass[b], mass_of[b].Get());
    atomicAdd(&state.count[b], count_of[b]);
  }
}

// The mass of all tokens that are at least `share` times as likely as the likeliest. Every thread of the
// block.
__device__ Mass MassOfLikely(const Row& row, const RowState& state, double share, Shared& shared) {
  // Tokens at a distance near the border's are looked at one by one, as their logarithm may round otherwise.
  const double border = -log(share);
  const int near = border < kFarthest ? Among::DistanceDigit(border) : kBins + 1;
  if (threadIdx.x == 0) shared.sum.Clear();
  __syncthreads();
  Mass sum = 0;
  for (int b = static_cast<int>(threadIdx.x); b < kBins && b < near - 1; b += kThreads) sum += state.mass[b];
  ForTokens(row, [&](Mass, double distance) {
    const int digit = Among::DistanceDigit(distance);
    if (digit >= near - 1 && digit <= near + 1 && exp(-distance) >= share) sum += MassAt(distance);
  });
  shared.sum.Add(sum);
  __syncthreads();
  return shared.sum.Get();
}

__global__ void __launch_bounds__(kThreads) DrawKernel(Draws draws) {
  __shared__ Shared shared;
  const RowDraw draw = draws.rows[blockIdx.x];
  const RowState& state = draws.StateOf(blockIdx.x);
  if (Ended(draw, state)) return;
  const Row row = RowOf(draws, draw, state);
  if (threadIdx.x < kRuns) {
    Mass mass = 0;
    unsigned count = 0;
#pragma unroll
    for (int b = 0; b < kRunBins; ++b) {
      mass += state.mass[static_cast<int>(threadIdx.x) * kRunBins + b];
      count += state.count[static_cast<int>(threadIdx.x) * kRunBins + b];
    }
    shared.run_mass[threadIdx.x] = mass;
    shared.run_count[threadIdx.x] = count;
  }
  if (threadIdx.x == 0) shared.list_digit = -1;
  __syncthreads();

  Mass kept = 0;
  if (draw.top_k > 0) {
    kept = Seek(row, state, {.count = static_cast<unsigned>(draw.top_k)}, shared).mass;
  } else {
    for (const Mass mass : shared.run_mass) kept += mass;
  }
  if (draw.top_p < 1) {
    const double enough = ceil(static_cast<double>(draw.top_p) * static_cast<double>(kept));
    Goal head;
    head.mass = enough > 1 ? static_cast<Mass>(enough) - 1 : 0;
    kept = Seek(row, state, head, shared).mass;
  }
  if (draw.min_p > 0) {
    const Mass likely = MassOfLikely(row, state, static_cast<double>(draw.min_p), shared);
    kept = likely < kept ? likely : kept;
  }

  Goal drawn;
  drawn.mass = static_cast<Mass>(draw.uniform * static_cast<double>(kept));
  drawn.mass = drawn.mass < kept ? drawn.mass : kept - 1;  // where the product was rounded up
  const Among among = Seek(row, state, drawn, shared).among;
  const bool listed = shared.list_digit == among.distance_digit;
  ForListed(row, listed, among, shared, [&](Mass rank, double distance) {
    if (MassAt(distance) > 0) draws.Give(blockIdx.x, IdOf(rank));
  });
}

}  // namespace

void CountSeen(const DrawView& draws, int vocabulary, uint32_t* counts, cudaStream_t stream) {
  if (draws.seen_count == 0) return;
  CountSeenKernel<<<static_cast<unsigned>(draws.seen_count), kThreads, 0, stream>>>(draws.seen, draws.tokens,
                                                                                    vocabulary, counts);
  CheckLaunch("count seen tokens");
}

void Draw(float* logits, int64_t stride, int vocabulary, const DrawView& view, uint32_t* counts,
          int32_t* tokens, std::byte* states, cudaStream_t stream) {
  if (view.row_count == 0) return;
  const Draws draws{logits, stride, vocabulary, view.rows, view.biases, view.masks, counts, tokens, states};
  const dim3 parts(static_cast<unsigned>((vocabulary + kPart - 1) / kPart),
                   static_cast<unsigned>(view.row_count));
  BestKernel<<<parts, kPartThreads, 0, stream>>>(draws);
  CheckLaunch("best token");
  if (view.all_greedy) return;
  HistogramKernel<<<parts, kPartThreads, 0, stream>>>(draws);
  CheckLaunch("histogram of masses");
  DrawKernel<<<static_cast<unsigned>(view.row_count), kThreads, 0, stream>>>(draws);
  CheckLaunch("draw");
}

}  // namespace baton::kernels::cuda
