#include "worker/disk_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "engine/kv/tier/patient_folder.h"
#include "engine/kv/tier/shared_store.h"
#include "spdlog/spdlog.h"

namespace baton::worker {
namespace {

// A load, and each byte of it, until some were seen: those of a fast disk. A slower one is known for what it
// is after a load or two; one that is taken for slow would never be tried.
constexpr double kFirstLoadBase = 5e-4, kFirstLoadBytesPerSecond = 3e9;
// The same for a folder behind a network.
constexpr double kFirstSharedBase = 3e-3, kFirstSharedBytesPerSecond = 1e9;
// A call to the shared folder that takes longer counts as one that hangs.
constexpr absl::Duration kSharedPatience = absl::Seconds(5);
// How often a worker looks what others have published, and when it publishes what makes no full run.
constexpr absl::Duration kSharedRefresh = absl::Seconds(1), kSharedSettle = absl::Milliseconds(300);
// Loads at once.
constexpr int kMaxLoads = 8;
// A rate that differs by this share from what was told is news.
constexpr double kRateNews = 0.2;

Sha256Digest LayoutDigest(const kv::KvLayout& layout) {
  std::string text = fmt::format("{} {} {} {} {}", layout.layers, layout.kv_heads, layout.head_dim,
                                 static_cast<int>(layout.key_dtype), static_cast<int>(layout.value_dtype));
  for (const kv::KvException& exception : layout.exceptions) {
    text += fmt::format(" {} {} {}", exception.layer, static_cast<int>(exception.key_dtype),
                        static_cast<int>(exception.value_dtype));
  }
  Sha256 digest;
  digest.Update(text);
  return digest.Finish();
}

kv::tier::Identity IdentityOf(engine::Engine& engine) {
  kv::tier::Identity identity;
  const std::string digest = engine.fingerprint().Digest();
  std::copy_n(digest.begin(), std::min(digest.size(), identity.fingerprint.size()),
              identity.fingerprint.begin());
  identity.layout = LayoutDigest(engine.store().layout());
  identity.block_bytes = engine.store().layout().block_bytes();
  return identity;
}

bool Differs(double now, double told) { return std::abs(now - told) > kRateNews * told; }

}  // namespace

absl::StatusOr<DiskCache::Files> DiskCache::OpenFiles(const DiskOptions& options) {
  Files files;
  if (!options.key_file.empty()) {
    BATON_ASSIGN_OR_RETURN(files.keys, kv::tier::ReadDiskKeys(options.key_file));
  }
  if (!options.folder.empty()) {
    BATON_ASSIGN_OR_RETURN(files.folder, kv::tier::OpenPosixFolder(options.folder));
  }
  if (!options.shared_folder.empty()) {
    const auto open = [path = options.shared_folder] {
      return kv::tier::OpenPosixFolder(path, kv::tier::FolderUse::kShared);
    };
    BATON_ASSIGN_OR_RETURN(files.shared, kv::tier::OpenPatiently(open, kSharedPatience));
  }
  return files;
}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Create(
    const DiskOptions& options, Files files, engine::Engine& engine, engine::Loop& loop,
    transfer::LinkReceiver& link, Incarnation incarnation, const forecast::StepCost& step_cost,
    const Clock& clock, telemetry::Metrics& metrics) {
  const auto make = [&](const char* name, std::unique_ptr<kv::tier::BlockStore> store, const LoadCost& first,
                        absl::Duration settle) {
    return std::make_unique<Tier>(name, std::move(store), first, settle, options.always, engine, loop, link,
                                  incarnation, clock, metrics);
  };
  auto cache = std::unique_ptr<DiskCache>(new DiskCache());
  if (files.folder != nullptr) {
    const absl::Time begin = clock.Now();
    BATON_ASSIGN_OR_RETURN(auto store,
                           kv::tier::DiskStore::Open(
                               std::move(files.folder),
                               {.bytes = options.bytes, .identity = IdentityOf(engine), .keys = files.keys}));
    const kv::tier::DiskStore::Found& found = store->found();
    spdlog::info(
        "{}: {} KV blocks of earlier processes, read in {:.3g} s; {} slots torn, {} files of another model, "
        "layout or version dropped",
        options.folder, found.blocks, absl::ToDoubleSeconds(clock.Now() - begin), found.unsealed_slots,
        found.foreign_segments);
    if (found.other_key_segments > 0) {
      spdlog::warn("{}: {} files dropped, as {}", options.folder, found.other_key_segments,
                   options.key_file.empty() ? "they are encrypted and there is no --kv-disk-key"
                                            : "they are in the clear, or of a key that --kv-disk-key lacks");
    }
    cache->store_ = store.get();
    cache->disk_ = make(fetch::kDiskName, std::move(store),
                        {.base = kFirstLoadBase, .rate = kFirstLoadBytesPerSecond}, absl::InfiniteDuration());
  }
  if (files.shared != nullptr) {
    BATON_ASSIGN_OR_RETURN(auto store, kv::tier::SharedStore::Open(std::move(files.shared),
                                                                   {.bytes = options.shared_bytes,
                                                                    .identity = IdentityOf(engine),
                                                                    .keys = files.keys,
                                                                    .refresh = kSharedRefresh},
                                                                   clock));
    const auto counts = store->counts();
    spdlog::info("{}: {} KV blocks for this model and key, {} bytes in all", options.shared_folder,
                 counts.blocks, counts.bytes);
    cache->shared_ = make(fetch::kSharedName, std::move(store),
                          {.base = kFirstSharedBase, .rate = kFirstSharedBytesPerSecond}, kSharedSettle);
  }
  for (Tier* tier : {cache->disk_.get(), cache->shared_.get()}) {
    if (tier == nullptr) continue;
    if (cache->write_behind_ != nullptr) {
      cache->write_behind_->Add(tier->tier, tier->fetcher, tier->probe);
      continue;
    }
    cache->write_behind_ = std::make_unique<fetch::WriteBehind>(
        fetch::WriteBehindOptions{.compute_seconds = kBlockTokens * step_cost.token,
                                  .always = options.always},
        engine, tier->tier, tier->fetcher, clock, tier->probe);
  }
  return cache;
}

DiskCache::Tier::Tier(const char* name, std::unique_ptr<kv::tier::BlockStore> store, const LoadCost& first,
                      absl::Duration settle, bool always, engine::Engine& engine, engine::Loop& loop,
                      transfer::LinkReceiver& link, Incarnation incarnation, const Clock& clock,
                      telemetry::Metrics& metrics)
    : probe(metrics, name),
      load_probe(metrics, fetch::FetchProbe::Tier{name}),
      tier(std::move(store), {.settle = settle}, clock, [&loop] { loop.PostAlways([] {}); }),
      client({.layers = engine.store().layout().layers, .max_chunk_bytes = rpc::kMaxChunkBytes}, loop, tier),
      // The tickets of two fetchers are told apart by their receivers, each of which knows its own alone.
      fetcher({.worker_id = "",
               .incarnation = incarnation,
               .max_fetches = kMaxLoads,
               .always = always,
               .first_base = first.base,
               .first_block = static_cast<double>(engine.store().layout().block_bytes()) / first.rate},
              engine, link, client, clock, load_probe),
      source(tier, fetcher, name) {}

std::optional<fleet::v1::DiskRate> DiskCache::TakeRateNews() {
  fleet::v1::DiskRate rate;
  rate.set_base_seconds(disk_->fetcher.BaseSeconds());
  // Loads so fast that only their number counts take no time by their bytes.
  const double block = std::max(disk_->fetcher.BlockSeconds(), 1e-9);
  rate.set_bytes_per_second(static_cast<double>(store()->identity().block_bytes) / block);
  if (told_.has_value() && !Differs(rate.base_seconds(), told_->base_seconds()) &&
      !Differs(rate.bytes_per_second(), told_->bytes_per_second())) {
    return std::nullopt;
  }
  told_ = rate;
  return rate;
}

}  // namespace baton::worker
