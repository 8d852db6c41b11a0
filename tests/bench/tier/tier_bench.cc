// The disk tier on a real decode server in this process, over loopback and gRPC as everywhere:
//
//   restart      TTFT of a long prefix that was warm before a restart: from disk, beside the time that its
//                bytes take at the disk's measured bandwidth and the rest of the prompt, and beside computing
//                it again
//   working set  hits of prompts that take ten times the memory, beside those of an endless cache
//   writes       time between tokens of running answers while prompts fill the cache, with and without a disk
//
//   start        what it takes to find all blocks of a full folder again, beside reading one page for each
//
// Medians and percentiles of one run on one machine; read the ratios.
#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "baton/fleet/v1/decode.grpc.pb.h"
#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/base/build_info.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "decode_service/server.h"
#include "engine/kv/tier/disk_store.h"
#include "engine/kv/tier/folder.h"
#include "spdlog/spdlog.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
using Prompt = std::vector<int32_t>;

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.at(static_cast<size_t>(share * static_cast<double>(values.size() - 1)));
}
double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

// A decode server, restarted by making another.
class Server {
 public:
  explicit Server(const worker::Options& worker) : server_(Start(worker)) {
    stub_ = fleet::v1::Decode::NewStub(rpc::MakeChannel(server_->address()));
    const auto stub = fleet::v1::Worker::NewStub(rpc::MakeChannel(server_->address()));
    grpc::ClientContext context;
    const auto reader = stub->Watch(&context, fleet::v1::WatchRequest());
    fleet::v1::WatchEvent event;
    BATON_CHECK(reader->Read(&event)) << server_->address();
    context.TryCancel();
    info_ = event.snapshot().info();
  }

  // `gaps`, if there is one, gets the seconds between tokens.
  v1::Finished Run(const Prompt& prompt, uint32_t max_tokens, std::vector<double>* gaps = nullptr) {
    fleet::v1::DecodeRequest request;
    *request.mutable_fingerprint() = info_.fingerprint();
    request.mutable_token_ids()->Add(prompt.begin(), prompt.end());
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stop()->set_max_tokens(max_tokens);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_output()->set_token_ids(true);
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    v1::Finished finished;
    std::optional<absl::Time> last;
    for (fleet::v1::DecodeEvent event; reader->Read(&event);) {
      if (event.has_finished()) finished = event.finished();
      if (event.delta().token_ids().empty()) continue;
      const absl::Time now = clock_.Now();
      if (gaps != nullptr && last.has_value()) gaps->push_back(absl::ToDoubleSeconds(now - *last));
      last = now;
    }
    const grpc::Status status = reader->Finish();
    BATON_CHECK(status.ok()) << status.error_message();
    return finished;
  }
  const fleet::v1::WorkerInfo& info() const { return info_; }

 private:
  // By itself: GCC 12 takes what it inlines into a larger function for uninitialized.
  [[gnu::noinline]] static std::unique_ptr<decode_service::DecodeServer> Start(
      const worker::Options& worker) {
    decode_service::ServerOptions options;
    options.worker = worker;
    return decode_service::DecodeServer::Start(std::move(options)).value();
  }

  const MonotonicClock clock_;
  std::unique_ptr<decode_service::DecodeServer> server_;
  std::unique_ptr<fleet::v1::Decode::Stub> stub_;
  fleet::v1::WorkerInfo info_;
};

struct Options {
  worker::Options worker;
  std::string disk;
  int rounds = 5;
  std::vector<int64_t> sizes = {1024, 2048};
  int64_t set_prompts = 60, set_tokens = 512, set_requests = 300;
  int64_t start_blocks = 10'000, start_block_bytes = int64_t{128} << 10;
  int64_t streams = 2, stream_tokens = 300, write_tokens = 512;
  std::mt19937 random{1};

  Prompt MakePrompt(int64_t tokens, uint32_t vocabulary) {
    Prompt prompt;
    for (int64_t i = 0; i < tokens; ++i)
      prompt.push_back(static_cast<int32_t>(20 + random() % (vocabulary - 20)));
    return prompt;
  }
  worker::Options WithDisk() const {
    worker::Options with = worker;
    with.disk.folder = disk + "/blocks";
    return with;
  }
};

// Bytes per second of reading files that were just written, past the page cache where the disk allows it.
double DiskBandwidth(const std::string& disk) {
  constexpr int64_t kPart = int64_t{4} << 20, kAll = int64_t{256} << 20;
  fs::remove_all(disk + "/bandwidth");
  auto folder = kv::tier::OpenPosixFolder(disk + "/bandwidth").value();
  auto file = folder->Create("file", kAll).value();
  kv::tier::PageBuffer buffer(kPart);
  for (size_t i = 0; i < buffer.bytes().size(); ++i)
    buffer.bytes()[i] = static_cast<std::byte>(i * 31 + i / 251);
  for (int64_t at = 0; at < kAll; at += kPart) BATON_CHECK(file->WriteAt(at, buffer.bytes()).ok());
  const MonotonicClock clock;
  const absl::Time begin = clock.Now();
  for (int64_t at = 0; at < kAll; at += kPart) BATON_CHECK(file->ReadAt(at, buffer.bytes()).ok());
  const double seconds = absl::ToDoubleSeconds(clock.Now() - begin);
  fs::remove_all(disk + "/bandwidth");
  return static_cast<double>(kAll) / seconds;
}

void Restarts(Options& options) {
  const double bandwidth = DiskBandwidth(options.disk);
  std::printf("restart: the disk reads %.0f MB/s\n", bandwidth / 1e6);
  for (const int64_t size : options.sizes) {
    fs::remove_all(options.disk + "/blocks");
    std::vector<double> computed, memory, loaded, bound;
    double bytes = 0;
    for (int round = 0; round < options.rounds; ++round) {
      auto server = std::make_unique<Server>(options.WithDisk());
      const Prompt prompt = options.MakePrompt(size + 1, server->info().vocabulary_tokens());
      computed.push_back(server->Run(prompt, 1).timing().ttft_seconds());
      // The rest of a prompt whose prefix is there: one chunk.
      memory.push_back(server->Run(prompt, 1).timing().ttft_seconds());
      server.reset();
      server = std::make_unique<Server>(options.WithDisk());
      // Pays the costs of any first request.
      server->Run(options.MakePrompt(40, server->info().vocabulary_tokens()), 1);
      const v1::Finished finished = server->Run(prompt, 1);
      BATON_CHECK(static_cast<int64_t>(finished.relay().fetched_tokens()) ==
                  size / kBlockTokens * kBlockTokens)
          << finished.relay().fetched_tokens() << " of " << size << " tokens came from disk";
      loaded.push_back(finished.timing().ttft_seconds());
      const fleet::v1::KvLayout& kv = server->info().fingerprint().kv();
      const auto value_bytes = [](const std::string& dtype) {
        return dtype == "f32" ? 4.0 : dtype == "bf16" || dtype == "f16" ? 2.0 : 1.0;
      };
      bytes = static_cast<double>(size) * kv.layers() * kv.kv_heads() * kv.head_dim() *
              (value_bytes(kv.key_dtype()) + value_bytes(kv.value_dtype()));
      bound.push_back(bytes / bandwidth + memory.back());
    }
    std::printf(
        "  %6ld tokens, %7.1f MB: computed %9.1f ms, from disk %8.1f ms, bytes / bandwidth + one chunk %8.1f "
        "ms; from disk / that %.2f, computed / from disk %.1f (medians of %d)\n",
        static_cast<long>(size), bytes / 1e6, 1e3 * Median(computed), 1e3 * Median(loaded),
        1e3 * Median(bound), Median(loaded) / Median(bound), Median(computed) / Median(loaded),
        options.rounds);
  }
}

// Prompts drawn by Zipf's law, all of which take ten times the memory.
void WorkingSet(Options& options) {
  fs::remove_all(options.disk + "/blocks");
  std::vector<double> weights;
  for (int64_t i = 0; i < options.set_prompts; ++i)
    weights.push_back(1 / std::pow(static_cast<double>(i + 1), 0.7));
  double share[2], endless = 0;
  for (const bool disk : {false, true}) {
    options.random.seed(2);
    worker::Options worker = disk ? options.WithDisk() : options.worker;
    worker.engine.kv_blocks = options.set_prompts * options.set_tokens / kBlockTokens / 10;  // a tenth of all
    fs::remove_all(options.disk + "/blocks");
    Server server(worker);
    std::vector<Prompt> prompts;
    for (int64_t i = 0; i < options.set_prompts; ++i) {
      prompts.push_back(options.MakePrompt(options.set_tokens + 1, server.info().vocabulary_tokens()));
    }
    std::discrete_distribution<size_t> draw(weights.begin(), weights.end());
    std::vector<bool> seen(prompts.size());
    double hits = 0, all = 0, known = 0;
    for (int64_t i = 0; i < options.set_requests; ++i) {
      const size_t at = draw(options.random);
      const v1::Finished finished = server.Run(prompts[at], 2);
      hits += finished.usage().decode_cached_tokens();
      all += static_cast<double>(options.set_tokens);
      if (seen[at]) known += static_cast<double>(options.set_tokens);
      seen[at] = true;
    }
    share[disk ? 1 : 0] = hits / all;
    endless = known / all;
  }
  std::printf(
      "working set of ten times the memory, %ld prompts of %ld tokens, %ld requests: hits %.1f%% without a "
      "disk, %.1f%% with it, %.1f%% of an endless cache; with it / endless %.3f\n",
      static_cast<long>(options.set_prompts), static_cast<long>(options.set_tokens),
      static_cast<long>(options.set_requests), 100 * share[0], 100 * share[1], 100 * endless,
      share[1] / endless);
}

void Writes(Options& options) {
  std::vector<double> gaps[2];
  // In turns, so that what else the machine does meets both alike.
  for (int round = 0; round < options.rounds; ++round) {
    for (const bool disk : {false, true}) {
      fs::remove_all(options.disk + "/blocks");
      Server server(disk ? options.WithDisk() : options.worker);
      const uint32_t vocabulary = server.info().vocabulary_tokens();
      std::vector<std::vector<double>> own(static_cast<size_t>(options.streams));
      std::vector<std::thread> streams;
      std::atomic<int64_t> running = options.streams;
      for (auto& mine : own) {
        streams.emplace_back([&, prompt = options.MakePrompt(100, vocabulary)] {
          server.Run(prompt, static_cast<uint32_t>(options.stream_tokens), &mine);
          --running;
        });
      }
      // New prompts all the time: each is cached, and with a disk written.
      while (running > 0) server.Run(options.MakePrompt(options.write_tokens, vocabulary), 1);
      for (std::thread& stream : streams) stream.join();
      for (const auto& mine : own)
        gaps[disk ? 1 : 0].insert(gaps[disk ? 1 : 0].end(), mine.begin(), mine.end());
    }
  }
  const auto shown = [&](const std::vector<double>& of) {
    std::printf(" p50 %.2f ms, p99 %.2f ms", 1e3 * Median(of), 1e3 * Percentile(of, 0.99));
  };
  std::printf(
      "writes beside %ld answers and prompts of %ld tokens without end: time between tokens without a disk",
      static_cast<long>(options.streams), static_cast<long>(options.write_tokens));
  shown(gaps[0]);
  std::printf("; with all of it written");
  shown(gaps[1]);
  std::printf("; p99 %+.1f%% (%zu and %zu gaps)\n",
              100 * (Percentile(gaps[1], 0.99) / Percentile(gaps[0], 0.99) - 1), gaps[0].size(),
              gaps[1].size());
}

void Starts(Options& options) {
  const std::string folder = options.disk + "/start";
  const MonotonicClock clock;
  for (const bool encrypted : {false, true}) {
    fs::remove_all(folder);
    kv::tier::StoreOptions store_options;
    store_options.identity.block_bytes = options.start_block_bytes;
    const int64_t slot = store_options.identity.slot_bytes();
    store_options.bytes = (options.start_blocks + options.start_blocks / 8) * slot;
    if (encrypted) store_options.keys.emplace_back().fill(std::byte{7});
    auto store = kv::tier::DiskStore::Open(kv::tier::OpenPosixFolder(folder).value(), store_options).value();
    kv::tier::PageBuffer bytes(slot);
    for (int64_t i = 0; i < options.start_blocks; ++i) {
      const std::string name = fmt::format("{:016}", i);
      const kv::BlockHash hash = kv::BlockHash::FromBytes(name);
      BATON_CHECK(store->Append(hash, hash, bytes).ok());
    }
    store.reset();
    std::vector<double> starts, pages;
    for (int round = 0; round < options.rounds; ++round) {
      absl::Time begin = clock.Now();
      store = kv::tier::DiskStore::Open(kv::tier::OpenPosixFolder(folder).value(), store_options).value();
      starts.push_back(absl::ToDoubleSeconds(clock.Now() - begin));
      BATON_CHECK_EQ(store->found().blocks, options.start_blocks);
      store.reset();
      auto files = kv::tier::OpenPosixFolder(folder).value();
      kv::tier::PageBuffer page(kv::tier::kPage);
      const std::vector<std::string> names = files->List().value();
      begin = clock.Now();
      for (const std::string& name : names) {
        auto file = files->Open(name).value();
        for (int64_t end = kv::tier::kPage + slot; end <= file->size(); end += slot) {
          BATON_CHECK(file->ReadAt(end - kv::tier::kPage, page.bytes()).ok());
        }
      }
      pages.push_back(absl::ToDoubleSeconds(clock.Now() - begin));
    }
    fs::remove_all(folder);
    std::printf("start with %ld blocks of %ld bytes, %s: %.1f ms; reading a page for each: %.1f ms\n",
                static_cast<long>(options.start_blocks), static_cast<long>(options.start_block_bytes),
                encrypted ? "encrypted" : "in the clear", 1e3 * Median(starts), 1e3 * Median(pages));
  }
}

int Main(int argc, char** argv) {
  Options options;
  // Loads and writes are not asked for a prediction: the measure is what they take.
  options.worker = {.peer_fetch = "always"};
  options.worker.process.log_level = "error";
  options.worker.engine.model_folder = BATON_SOURCE_DIR "/models/baton-tiny";
  options.worker.engine.kv_bytes = int64_t{512} << 20;
  options.worker.engine.threads = 1;
  options.worker.process.drain_seconds = 0;
  std::vector<std::string> parts = {"restart", "working-set", "writes", "start"};
  CLI::App app{
      "A worker's disk: prefixes after a restart, hits beyond memory, time between tokens under writes."};
  app.add_option("--model", options.worker.engine.model_folder, "Model folder")->capture_default_str();
  app.add_option("--disk", options.disk, "Folder on the disk (default: a new one in /tmp)")->type_name("DIR");
  app.add_option("--disk-size", options.worker.disk.bytes, "Bytes on disk")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--kv-memory", options.worker.engine.kv_bytes, "Bytes in memory")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--threads", options.worker.engine.threads, "Threads")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Repetitions")->capture_default_str();
  app.add_option("--tokens", options.sizes, "Sizes of prefixes after a restart")->capture_default_str();
  app.add_option("--set-prompts", options.set_prompts, "Prompts of the working set")->capture_default_str();
  app.add_option("--set-tokens", options.set_tokens, "Tokens of each")->capture_default_str();
  app.add_option("--set-requests", options.set_requests, "Requests for them")->capture_default_str();
  app.add_option("--streams", options.streams, "Answers that run during writes")->capture_default_str();
  app.add_option("--stream-tokens", options.stream_tokens, "Tokens of each")->capture_default_str();
  app.add_option("--start-blocks", options.start_blocks, "Blocks of a folder that is opened")
      ->capture_default_str();
  app.add_option("--start-block-size", options.start_block_bytes, "Bytes of each")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--parts", parts, "restart, working-set, writes, start")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::err);
  const BuildInfo build = GetBuildInfo();
  std::string made;
  if (options.disk.empty()) {
    char path[] = "/tmp/tier_bench.XXXXXX";
    BATON_CHECK(mkdtemp(path) != nullptr);
    options.disk = made = path;
  }
  std::printf("%s, %d thread(s), disk in %s, %s, %s, commit %s, seed 1\n",
              options.worker.engine.model_folder.c_str(), options.worker.engine.threads, options.disk.c_str(),
              build.compiler, build.build_type, build.commit);
  const auto asked = [&](const char* part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (asked("restart")) Restarts(options);
  if (asked("working-set")) WorkingSet(options);
  if (asked("writes")) Writes(options);
  if (asked("start")) Starts(options);
  fs::remove_all(options.disk + "/blocks");
  if (!made.empty()) fs::remove_all(made);
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
