// Costs of the prefix index at fleet size: 10 million (block, worker) pairs on 8, 1,000 and 7,000 workers.
//
// The pairs: a system prompt of 16 blocks that every worker holds; long conversations of 6,250 blocks
// (100,000 tokens) on two workers each, which are half of the rest; short ones of 48 blocks behind the system
// prompt, on one or two workers. Counted as ai-dynamo/dynamo's lib/kv-router does: a state operation is one
// message (one store, one removal, one lookup), a block operation is one block of it.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "common/base/build_info.h"
#include "common/base/check.h"
#include "router/index/prefix_index.h"

namespace baton::router::index {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSystemBlocks = 16;
constexpr int kShortBlocks = 48;
constexpr int kLongBlocks = 6250;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// SplitMix64: uniform, as block hashes are.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

kv::BlockHash Block(uint64_t conversation, uint64_t at) {
  const uint64_t words[2] = {Mix(conversation * 1'000'003 + at), Mix(~conversation * 7 + at * 11)};
  return kv::BlockHash::FromBytes({reinterpret_cast<const char*>(words), sizeof(words)});
}

void Append(uint64_t conversation, int blocks, std::vector<kv::BlockHash>* chain) {
  for (int i = 0; i < blocks; ++i) chain->push_back(Block(conversation, i));
}

struct Percentiles {
  double p50 = 0, p99 = 0, mean = 0;  // microseconds
};

Percentiles Of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  double sum = 0;
  for (const double one : seconds) sum += one;
  return {.p50 = seconds[seconds.size() / 2] * 1e6,
          .p99 = seconds[seconds.size() * 99 / 100] * 1e6,
          .mean = sum / static_cast<double>(seconds.size()) * 1e6};
}

class Fleet {
 public:
  // `holders` of a conversation; 0: two of a long one, one or two of a short one.
  Fleet(int workers, int64_t pairs, int holders, uint32_t seed)
      : index_({.max_bytes = int64_t{4} << 30}), random_(seed) {
    for (int i = 0; i < workers; ++i) slots_.push_back(*index_.Join());
    Append(0, kSystemBlocks, &system_);
    for (const WorkerSlot slot : slots_) index_.Store(slot, system_);
    const int many = holders > 0 ? holders : 2;
    const int64_t rest = std::max<int64_t>(0, pairs - index_.stats().pairs);
    for (int64_t i = 0; i < rest / 2 / (many * kLongBlocks); ++i) long_.push_back(Add(kLongBlocks, many));
    while (index_.stats().pairs < pairs)
      short_.push_back(Add(kShortBlocks, holders > 0 ? holders : 1 + random_() % 2));
  }

  PrefixIndex& index() { return index_; }

  Percentiles LookUpShort(int count) {
    return LookUp(count, [this](std::vector<kv::BlockHash>* chain) {
      *chain = system_;
      const size_t at = random_() % short_.size();
      Append(short_[at].id, kShortBlocks, chain);
      return short_[at].workers[0];
    });
  }

  Percentiles LookUpLong(int count) {
    return LookUp(count, [this](std::vector<kv::BlockHash>* chain) {
      chain->clear();
      const size_t at = random_() % long_.size();
      Append(long_[at].id, kLongBlocks, chain);
      return long_[at].workers[0];
    });
  }

  // Turns over conversations: one is evicted whole, another comes, 16 blocks a message. Seconds per message.
  double ChurnConversations(int64_t conversations) {
    std::vector<kv::BlockHash> chain;
    double seconds = 0;
    for (int64_t i = 0; i < conversations; ++i) {
      Conversation& old = short_[random_() % short_.size()];
      chain.clear();
      Append(old.id, kShortBlocks, &chain);
      const uint64_t id = ++conversations_;
      std::vector<kv::BlockHash> fresh;
      Append(id, kShortBlocks, &fresh);
      const auto start = Clock::now();
      for (const WorkerSlot slot : old.workers) {
        for (int at = kShortBlocks - 16; at >= 0; at -= 16) index_.Evict(slot, {chain.data() + at, 16});
        for (int at = 0; at < kShortBlocks; at += 16) index_.Store(slot, {fresh.data() + at, 16});
      }
      seconds += Seconds(Clock::now() - start);
      messages_ += static_cast<int64_t>(old.workers.size()) * 6;
      old.id = id;
    }
    return seconds;
  }
  int64_t TakeMessages() { return std::exchange(messages_, 0); }

  // Workers restart one after the other and come back with what they had of the short conversations.
  void ChurnWorkers() {
    for (WorkerSlot& slot : slots_) {
      const WorkerSlot old = slot;
      index_.Leave(old);
      slot = *index_.Join();
      index_.Store(slot, system_);
      index_.Maintain(absl::UnixEpoch());
    }
    const auto restore = [&](std::vector<Conversation>& conversations, int blocks) {
      std::vector<kv::BlockHash> chain;
      for (Conversation& conversation : conversations) {
        chain.clear();
        Append(conversation.id, blocks, &chain);
        for (WorkerSlot& slot : conversation.workers) {
          slot = slots_[random_() % slots_.size()];
          index_.Store(slot, chain);
        }
      }
    };
    restore(short_, kShortBlocks);
    restore(long_, kLongBlocks);
    while (index_.Maintain(absl::UnixEpoch())) {
    }
  }

  // A snapshot of a worker's blocks while others look up.
  Percentiles LookUpDuringSnapshots(int count) {
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      std::vector<kv::BlockHash> blocks;
      Append(1'000'000'000, 100'000, &blocks);
      while (!stop) {
        const WorkerSlot slot = *index_.Join();
        index_.Store(slot, blocks);
        index_.Leave(slot);
      }
    });
    const Percentiles result = LookUpShort(count);
    stop = true;
    writer.join();
    while (index_.Maintain(absl::UnixEpoch())) {
    }
    return result;
  }

 private:
  struct Conversation {
    uint64_t id = 0;
    std::vector<WorkerSlot> workers;
  };

  Conversation Add(int blocks, size_t workers) {
    Conversation conversation{.id = ++conversations_, .workers = {}};
    std::vector<kv::BlockHash> chain;
    Append(conversation.id, blocks, &chain);
    for (size_t i = 0; i < workers; ++i) {
      conversation.workers.push_back(slots_[random_() % slots_.size()]);
      index_.Store(conversation.workers.back(), chain);
    }
    return conversation;
  }

  template <typename Next>
  Percentiles LookUp(int count, Next next) {
    std::vector<double> seconds;
    std::vector<kv::BlockHash> chain;
    Matches matches;
    for (int i = 0; i < count; ++i) {
      const WorkerSlot holder = next(&chain);
      const auto start = Clock::now();
      index_.Match(chain, &matches);
      seconds.push_back(Seconds(Clock::now() - start));
      BATON_CHECK_EQ(matches.of(holder), chain.size());
    }
    return Of(std::move(seconds));
  }

  PrefixIndex index_;
  std::mt19937 random_;
  std::vector<WorkerSlot> slots_;
  std::vector<kv::BlockHash> system_;
  std::vector<Conversation> short_, long_;
  uint64_t conversations_ = 0;
  int64_t messages_ = 0;
};

double ResidentMiB() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long pages = 0, resident = 0;
  const bool read = file != nullptr && std::fscanf(file, "%ld %ld", &pages, &resident) == 2;
  if (file != nullptr) std::fclose(file);
  return read ? static_cast<double>(resident) * 4096 / (1 << 20) : 0;
}

void Measure(int workers, int64_t pairs, int holders, uint32_t seed, int lookups) {
  const double before = ResidentMiB();
  const auto start = Clock::now();
  Fleet fleet(workers, pairs, holders, seed);
  const double filled = Seconds(Clock::now() - start);
  PrefixIndex::Stats stats = fleet.index().stats();
  fmt::print(
      "\n{} workers: {} pairs in {} blocks, {:.1f} MiB, {:.1f} bytes/pair (process: {:.0f} MiB), filled "
      "in {:.1f} s\n",
      workers, stats.pairs, stats.blocks, static_cast<double>(stats.bytes) / (1 << 20),
      static_cast<double>(stats.bytes) / static_cast<double>(stats.pairs), ResidentMiB() - before, filled);
  const auto show = [](const char* what, const Percentiles& p, int blocks) {
    fmt::print("  {:<34} p50 {:8.2f} us   p99 {:8.2f} us   {:.3g} state ops/s   {:.3g} block ops/s\n", what,
               p.p50, p.p99, 1e6 / p.mean, 1e6 / p.mean * blocks);
  };
  show("lookup, 64 blocks", fleet.LookUpShort(lookups), kSystemBlocks + kShortBlocks);
  show("lookup, 6,250 blocks", fleet.LookUpLong(std::max(100, lookups / 100)), kLongBlocks);
  show("lookup, 64 blocks, while written to", fleet.LookUpDuringSnapshots(lookups),
       kSystemBlocks + kShortBlocks);
  const double seconds = fleet.ChurnConversations(100'000);
  const auto messages = static_cast<double>(fleet.TakeMessages());
  fmt::print("  {:<34} {:.3g} state ops/s   {:.3g} block ops/s\n", "stores and removals, 16 blocks each",
             messages / seconds, messages * 16 / seconds);

  const double resident = ResidentMiB();
  for (int round = 0; round < 3; ++round) {
    fleet.ChurnWorkers();
    fleet.ChurnConversations(200'000);
  }
  stats = fleet.index().stats();
  fmt::print(
      "  after every worker restarted three times and 700,000 conversations came and went: {:.1f} MiB, "
      "{:.1f} "
      "bytes/pair, process {:+.0f} MiB\n",
      static_cast<double>(stats.bytes) / (1 << 20),
      static_cast<double>(stats.bytes) / static_cast<double>(stats.pairs), ResidentMiB() - resident);
  show("then: lookup, 64 blocks", fleet.LookUpShort(lookups), kSystemBlocks + kShortBlocks);
}

}  // namespace
}  // namespace baton::router::index

int main(int argc, char** argv) {
  std::vector<int> workers = {8, 1000, 7000};
  int64_t pairs = 10'000'000;
  int lookups = 100'000;
  int holders = 0;
  uint32_t seed = 1;
  CLI::App app("Measures the router's prefix index.");
  app.add_option("--workers", workers, "Fleet sizes")->delimiter(',')->capture_default_str();
  app.add_option("--pairs", pairs, "(block, worker) pairs")->capture_default_str();
  app.add_option("--holders", holders, "Workers that hold a conversation; 0: one or two")
      ->capture_default_str();
  app.add_option("--lookups", lookups, "Lookups of 64 blocks per measurement")->capture_default_str();
  app.add_option("--seed", seed, "Of the conversations")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fmt::print("commit {}, seed {}, {} cores\n", baton::GetBuildInfo().commit, seed,
             std::thread::hardware_concurrency());
  for (const int count : workers) baton::router::index::Measure(count, pairs, holders, seed, lookups);
  return 0;
}
