#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "engine/device/thread_pool.h"
#include "engine/model/measure_columns.h"

namespace baton::engine {
namespace {

// The share of a GPU's free memory that the KV pool takes by default. The rest is for activations, graphs and
// libraries.
constexpr double kShareForKv = 0.9;

absl::StatusOr<int64_t> BlocksOf(const EngineOptions& options, const kv::KvLayout& shard,
                                 device::Memory& memory) {
  if (options.kv_blocks.has_value()) {
    BATON_CHECK(*options.kv_blocks >= 1) << *options.kv_blocks;
    return *options.kv_blocks;
  }
  const int64_t bytes = options.kv_bytes.value_or(memory.host() ? EngineOptions::kHostKvBytes : int64_t{0});
  if (bytes == 0) {
    const int64_t left = memory.available();
    if (left < 0) {
      return absl::InvalidArgumentError("--kv-memory 0 (all that is left) works on GPUs: give a size");
    }
    const int64_t blocks =
        static_cast<int64_t>(kShareForKv * static_cast<double>(left)) / shard.block_bytes();
    if (blocks >= 1) return blocks;
    return absl::ResourceExhaustedError(fmt::format(
        "{}: {} bytes are left beside the weights, and one KV block takes {}: use a smaller model, a "
        "narrower KV dtype or a larger --tp",
        memory.name(), left, shard.block_bytes()));
  }
  const int64_t block_bytes = shard.block_bytes() * options.tp;
  const int64_t blocks = bytes / block_bytes;
  if (blocks >= 1) return blocks;
  return absl::InvalidArgumentError(fmt::format(
      "{} bytes of KV memory hold no block: one takes {} bytes; raise --kv-memory", bytes, block_bytes));
}

absl::Status CheckDevices(const EngineOptions& options) {
  const std::vector<int>& devices = options.devices;
  if (devices.empty()) return absl::OkStatus();
  if (options.backend != "cuda") {
    return absl::InvalidArgumentError(
        fmt::format("--devices names GPUs, and --backend is {}: use --backend cuda", options.backend));
  }
  if (std::ssize(devices) != options.tp) {
    return absl::InvalidArgumentError(fmt::format(
        "--devices names {} GPUs, and --tp is {}: a rank has one GPU", devices.size(), options.tp));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<int64_t>(i), devices[i]) !=
        devices.begin() + static_cast<int64_t>(i)) {
      return absl::InvalidArgumentError(
          fmt::format("--devices names GPU {} twice: each rank has one of its own", devices[i]));
    }
  }
  return absl::OkStatus();
}

kv::KvLayout LayoutOf(const EngineOptions& options, const model::Decoder& decoder, tensor::DType usual) {
  return decoder.LayoutFor(options.key_dtype.value_or(usual), options.value_dtype.value_or(usual));
}

// Bits depend on how many ranks a sum is split over, unless it is exact; where the backend promises bits,
// that is told.
std::string Numerics(std::string numerics, const kernels::Kernels& kernels, const model::Decoder& decoder,
                     const kv::KvLayout& kv, size_t ranks, bool tolerant) {
  if (const std::string of_kv = kernels.KvNumerics(kv); !of_kv.empty()) numerics += "+" + of_kv;
  if (tolerant && kernels.exact()) return numerics + "~";
  if (ranks > 1 && kernels.exact() && !decoder.exact_sums()) numerics += fmt::format("+tp{}", ranks);
  return numerics;
}

kv::KvLayout WholeLayout(kv::KvLayout shard, size_t ranks) {
  shard.kv_heads *= static_cast<int>(ranks);
  return shard;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  if (options.tp < 1) return absl::InvalidArgumentError(fmt::format("--tp {}: at least 1", options.tp));
  BATON_RETURN_IF_ERROR(CheckDevices(options));
  if (options.draft_weights.has_value() && *options.draft_weights == options.weights) {
    return absl::InvalidArgumentError(fmt::format(
        "the weights are kept as {} already (--weights), and a copy of them for drafts would be no quicker: "
        "leave out --self-draft",
        Name(options.weights)));
  }
  if (options.expert_file.empty() != (options.expert_memory == 0)) {
    return absl::InvalidArgumentError(
        "--expert-file and --expert-memory belong together: a file of `baton model pack`, and how many bytes "
        "of it are in memory at once");
  }
  if (!options.expert_file.empty() && options.draft_weights.has_value()) {
    return absl::InvalidArgumentError(
        "--self-draft keeps all experts in memory: leave it out, or --expert-file");
  }
  auto threads = std::make_unique<RankThreads>(options.tp);
  std::vector<Rank> ranks(static_cast<size_t>(options.tp));
  device::CoreShare* shared = options.tp == 1 ? options.cores : nullptr;  // null: threads of its own
  if (shared != nullptr) shared->Work();
  const int cores = options.threads > 0 ? options.threads : device::UsableCores();
  std::vector<kernels::Kernels*> kernels;
  for (int r = 0; r < options.tp; ++r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    kernels::CudaOptions cuda = options.cuda;
    cuda.device = options.devices.empty() ? r : options.devices[static_cast<size_t>(r)];
    BATON_ASSIGN_OR_RETURN(
        rank.kernels, kernels::MakeKernels(options.backend, std::max(1, cores / options.tp), cuda, shared));
    if (options.draft_weights.has_value() && !rank.kernels->memory().host()) {
      return absl::InvalidArgumentError(
          fmt::format("--self-draft needs a backend that computes on the host, and --backend is {}: leave it "
                      "out, or give "
                      "a --draft-model",
                      options.backend));
    }
    if (options.weights == model::WeightPrecision::kF32 && !rank.kernels->memory().host()) {
      return absl::InvalidArgumentError(fmt::format(
          "--weights f32 needs a backend that computes on the host, and --backend is {}: leave it out",
          options.backend));
    }
    kernels.push_back(rank.kernels.get());
  }
  if (options.tp > 1) {
    BATON_ASSIGN_OR_RETURN(auto group, kernels::MakeGroup(kernels));
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r].group = std::move(group[r]);
  }
  // Once for all ranks, on all cores, by kernels of their own, whose matrices are none of a rank's.
  model::ColumnExponents exponents;
  if (kernels.front()->takes_transforms() &&
      (MakesIntegers(options.weights) || MakesIntegers(options.draft_weights.value_or(options.weights)))) {
    BATON_ASSIGN_OR_RETURN(const auto measuring,
                           kernels::MakeKernels(options.backend, cores, options.cuda, shared));
    BATON_ASSIGN_OR_RETURN(exponents, model::MeasureColumns(options.model_folder, *measuring));
  }
  // Each rank loads its part on its own thread; no rank waits for another there, so each may fail alone.
  std::vector<absl::Status> loaded(ranks.size());
  threads->Run([&](int r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    auto decoder = model::Decoder::LoadShard(options.model_folder, *rank.kernels, rank.group.get(),
                                             {.precision = options.weights,
                                              .exponents = exponents,
                                              .threads = std::max(1, cores / options.tp),
                                              .cores = shared,
                                              .progress = r == 0 ? options.weights_progress : nullptr,
                                              .expert_file = options.expert_file,
                                              .expert_memory = options.expert_memory});
    loaded[static_cast<size_t>(r)] = decoder.status();
    if (!decoder.ok()) return;
    rank.decoder = *std::move(decoder);
    rank.numerics = rank.kernels->numerics();
    rank.kv_dtype = rank.kernels->kv_dtype();
    if (!options.draft_weights.has_value()) return;
    auto draft = model::Decoder::LoadShard(options.model_folder, *rank.kernels, rank.group.get(),
                                           {.precision = *options.draft_weights,
                                            .exponents = exponents,
                                            .threads = std::max(1, cores / options.tp),
                                            .cores = shared,
                                            .progress = r == 0 ? options.weights_progress : nullptr,
                                            .digest = false});
    loaded[static_cast<size_t>(r)] = draft.status();
    if (draft.ok()) rank.draft = *std::move(draft);
  });
  for (const absl::Status& status : loaded) BATON_RETURN_IF_ERROR(status);
  // Every rank holds its heads of the same blocks, so the fullest GPU decides.
  int64_t blocks = 0;
  for (Rank& rank : ranks) {
    const kv::KvLayout layout = LayoutOf(options, *rank.decoder, rank.kv_dtype);
    BATON_RETURN_IF_ERROR(rank.kernels->CheckLayout(layout, rank.decoder->config().head_dim));
    BATON_ASSIGN_OR_RETURN(const int64_t fit, BlocksOf(options, layout, rank.kernels->memory()));
    blocks = blocks == 0 ? fit : std::min(blocks, fit);
  }
  for (Rank& rank : ranks) {
    const kv::KvLayout layout = LayoutOf(options, *rank.decoder, rank.kv_dtype);
    BATON_ASSIGN_OR_RETURN(auto store, kv::KvStore::Create(layout, blocks, rank.kernels->memory()));
    rank.store.emplace(std::move(store));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(ranks), std::move(threads), options.tolerant));
}

Engine::Engine(std::vector<Rank> ranks, std::unique_ptr<RankThreads> threads, bool tolerant)
    : ranks_(std::move(ranks)),
      threads_(std::move(threads)),
      fingerprint_{
          .model = config().Describe(),
          .config = config().Digest(),
          .weights = std::string(ranks_.front().decoder->weights_digest()),
          .kv = WholeLayout(ranks_.front().store->layout(), ranks_.size()),
          .numerics = Numerics(ranks_.front().numerics, *ranks_.front().kernels, *ranks_.front().decoder,
                               ranks_.front().store->layout(), ranks_.size(), tolerant)},
      pool_(ranks_.front().store->blocks()) {
  if (ranks_.size() == 1) return;
  std::vector<kv::KvStore*> shards;
  for (Rank& rank : ranks_) shards.push_back(&*rank.store);
  ranks_memory_.emplace(shards);
  joint_.emplace(kv::KvStore::Joint(std::move(shards), *ranks_memory_));
}

Engine::~Engine() {
  // All ranks forget theirs before any rank's group ends.
  for (const Rank& rank : ranks_) rank.kernels->ForgetRecordings();
}

std::vector<device::Memory*> Engine::memories() const {
  std::vector<device::Memory*> memories;
  for (const Rank& rank : ranks_) memories.push_back(&rank.kernels->memory());
  return memories;
}

int64_t Engine::weight_bytes() const {
  int64_t bytes = 0;
  for (const Rank& rank : ranks_) {
    bytes += rank.decoder->weight_bytes() + (rank.draft != nullptr ? rank.draft->weight_bytes() : 0);
  }
  return bytes;
}

kv::BlockHash Engine::RootFor(const kv::TenantSalt& salt) const {
  return kv::RootHash(fingerprint_.Digest(), salt);
}

StepResult Engine::Forward(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done) {
  Launch(batch, layer_done);
  return Finish();
}

StepResult Engine::ForwardDraft(const Batch& batch) {
  BATON_CHECK(drafts() && in_flight_.empty());
  LaunchOn(&Rank::draft, batch, [](int) {});
  return FinishOn(&Rank::draft);
}

void Engine::Launch(const Batch& batch, absl::FunctionRef<void(int layer)> layer_done) {
  LaunchOn(&Rank::decoder, batch, layer_done);
}

StepResult Engine::Finish() { return FinishOn(&Rank::decoder); }

void Engine::LaunchOn(DecoderOf decoder, const Batch& batch, absl::FunctionRef<void(int layer)> layer_done) {
  const kernels::StepRows rows = batch.step_rows();
  const kernels::StepDraws draws = batch.step_draws();
  logits_.resize(batch.logit_count() * config().vocabulary);
  InFlightStep& step = in_flight_.emplace_back();
  step.shares.assign(batch.shares().begin(), batch.shares().end());
  step.logit_rows = batch.logit_count();
  for (const kernels::RowDraw& draw : draws.rows) step.drawn.push_back(draw.row);
  threads_->Run([&](int r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const auto ignore = [](int) {};
    const absl::FunctionRef<void(int)> done = r == 0 ? layer_done : absl::FunctionRef<void(int)>(ignore);
    (rank.*decoder)->Launch(rows, *rank.store, logits_, done, draws);
  });
}

StepResult Engine::FinishOn(DecoderOf decoder) {
  BATON_CHECK(!in_flight_.empty());
  InFlightStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<std::vector<TokenId>> tokens(ranks_.size(), std::vector<TokenId>(step.drawn.size()));
  threads_->Run([&](int r) {
    const auto rank = static_cast<size_t>(r);
    (ranks_[rank].*decoder)->Finish(logits_, tokens[rank]);
  });
  std::vector<TokenId> drawn(static_cast<size_t>(step.logit_rows), StepResult::kNotDrawn);
  for (size_t i = 0; i < step.drawn.size(); ++i) {
    drawn[static_cast<size_t>(step.drawn[i])] = tokens.front()[i];  // every rank has the same
  }
  // The logits of a step that was followed by another are overwritten.
  const std::span<const float> logits =
      in_flight_.empty() ? std::span<const float>(logits_) : std::span<const float>();
  return StepResult(std::move(step.shares), std::move(drawn), logits, config().vocabulary);
}

void Engine::Land(const model::Landing& landing) {
  BATON_CHECK(in_flight_.empty());
  threads_->Run([&](int r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    rank.decoder->Land(landing, *rank.store);
  });
}

absl::Status Engine::CheckLands() const {
  const kernels::Kernels& kernels = *ranks_.front().kernels;
  if (ranks_.front().store->memory().host()) return absl::OkStatus();
  return absl::UnimplementedError(fmt::format(
      "--chunk-reuse: the backend \"{}\" can't rotate keys that are computed already: use cpu, or "
      "leave the flag out",
      std::string(kernels.name())));
}

bool Engine::ReservePenaltySlots(int32_t slots) {
  std::vector<char> reserved(ranks_.size());
  threads_->Run([&](int r) {
    const auto rank = static_cast<size_t>(r);
    reserved[rank] = ranks_[rank].decoder->ReservePenaltySlots(slots);
  });
  return std::ranges::all_of(reserved, [](char ok) { return ok != 0; });
}

}  // namespace baton::engine
