// Replays every fuzz target over its corpus, and over seeded mutations of it, without a fuzzer: what was
// found once stays found, in every preset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/admission_operations.h"
#include "tests/fuzz/block_pool_operations.h"
#include "tests/fuzz/decode_scheduler_operations.h"
#include "tests/fuzz/disk_store_operations.h"
#include "tests/fuzz/fleet_operations.h"
#include "tests/fuzz/gateway_bytes.h"
#include "tests/fuzz/gateway_clients_operations.h"
#include "tests/fuzz/gguf_bytes.h"
#include "tests/fuzz/grammar_bytes.h"
#include "tests/fuzz/http2_bytes.h"
#include "tests/fuzz/http_bytes.h"
#include "tests/fuzz/intake_operations.h"
#include "tests/fuzz/kserve_bytes.h"
#include "tests/fuzz/log_nothing.h"
#include "tests/fuzz/model_bytes.h"
#include "tests/fuzz/model_shapes.h"
#include "tests/fuzz/operator_files.h"
#include "tests/fuzz/output_bytes.h"
#include "tests/fuzz/prefill_scheduler_operations.h"
#include "tests/fuzz/prefix_index_operations.h"
#include "tests/fuzz/request_bytes.h"
#include "tests/fuzz/rpc_bytes.h"
#include "tests/fuzz/shared_store_operations.h"
#include "tests/fuzz/text_bytes.h"
#include "tests/fuzz/trace_bytes.h"
#include "tests/seed.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

struct Target {
  std::string name;  // of its folder in corpus/
  absl::Status (*run)(std::span<const uint8_t> bytes);
  int mutations = 0;
  size_t max = 0;  // bytes of a mutation
};

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

template <auto kFunction>
absl::Status Run(std::span<const uint8_t> bytes) {
  if constexpr (std::is_same_v<decltype(kFunction(bytes)), absl::Status>) {
    return kFunction(bytes);
  } else {
    return kFunction(bytes).status();
  }
}

absl::Status RunChatTemplate(std::span<const uint8_t> bytes) {
  const auto config = text::FuzzTokenizerConfig(bytes);
  return config.ok() ? text::FuzzChatTemplate(bytes).status() : config.status();
}

// Operations cost more than parses.
const std::vector<Target>& Targets() {
  static const std::vector<Target> targets = {
      {"admission", Run<router::admission::RunAdmissionOperations>, 100, 1000},
      {"block_pool", Run<kv::RunBlockPoolOperations>, 100, 1000},
      {"chat_template", RunChatTemplate, 300, 4000},
      {"config", Run<model::FuzzConfig>, 300, 4000},
      {"decode_scheduler", Run<fuzz::RunDecodeSchedulerOperations>, 40, 600},
      {"disk_store", Run<kv::tier::RunDiskStoreOperations>, 100, 1000},
      {"fleet", Run<router::fleet::RunFleetOperations>, 40, 1000},
      {"gateway", Run<gateway::FuzzGateway>, 1000, 4000},
      {"gateway_clients", Run<gateway::RunGatewayClientsOperations>, 200, 1000},
      {"gguf", Run<gguf::FuzzGguf>, 300, 4000},
      {"grammar", Run<output::FuzzGrammar>, 1000, 1000},
      {"http", Run<gateway::http::FuzzHttp>, 300, 4000},
      {"http2", Run<gateway::http::FuzzHttp2>, 1000, 1000},
      {"intake", Run<transfer::RunIntakeOperations>, 100, 1000},
      {"kserve", Run<router::FuzzForeignRequest>, 5000, 1000},
      {"model_shapes", Run<fuzz::RunModelShapes>, 150, 100},
      {"operator_files", Run<router::RunOperatorFiles>, 300, 4000},
      {"output", Run<output::FuzzOutput>, 1000, 1000},
      {"prefill_scheduler", Run<fuzz::RunPrefillSchedulerOperations>, 40, 600},
      {"prefix_index", Run<router::index::RunPrefixIndexOperations>, 40, 1000},
      {"request", Run<RunRequestBytes>, 100, 1000},
      {"rpc", Run<fuzz::RunRpcBytes>, 60, 1000},
      {"safetensors", Run<model::FuzzSafetensors>, 300, 4000},
      {"shared_store", Run<kv::tier::RunSharedStoreOperations>, 100, 1000},
      {"tokenizer", Run<text::FuzzTokenizer>, 300, 4000},
      {"trace", Run<lab::bench::FuzzTrace>, 300, 4000},
  };
  return targets;
}

std::vector<std::pair<std::string, Bytes>> Corpus(const std::string& name) {
  std::vector<std::pair<std::string, Bytes>> corpus;
  for (const auto& entry : fs::directory_iterator(fs::path(BATON_SOURCE_DIR) / "tests/fuzz/corpus" / name)) {
    std::ifstream in(entry.path(), std::ios::binary);
    corpus.emplace_back(entry.path().filename(), Bytes(std::istreambuf_iterator<char>(in), {}));
  }
  std::ranges::sort(corpus);  // the same order everywhere: mutations are drawn from it
  return corpus;
}

class CorpusTest : public testing::TestWithParam<Target> {
 protected:
  CorpusTest() { fuzz::LogNothing(); }         // refusals are logged
  const google::protobuf::LogSilencer quiet_;  // of strings that are not UTF-8
};

TEST_P(CorpusTest, HoldsForEveryFile) {
  const auto corpus = Corpus(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  for (const auto& [file, bytes] : corpus) {
    const absl::Status status = GetParam().run(bytes);
    EXPECT_TRUE(status.ok()) << GetParam().name << "/" << file << ": " << status;
  }
}

TEST_P(CorpusTest, HoldsForMutations) {
  const auto corpus = Corpus(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  const uint32_t seed = static_cast<uint32_t>(TestSeed());
  std::mt19937 random(seed);
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < GetParam().mutations; ++round) {
    Bytes bytes = corpus[below(corpus.size())].second;
    for (size_t edits = 1 + below(8); edits > 0; --edits) {
      const size_t at = below(bytes.size() + 1);
      const auto here = bytes.begin() + static_cast<ptrdiff_t>(at);
      const size_t rest = bytes.size() - at;
      switch (below(4)) {
        case 0:
          if (rest > 0) *here = static_cast<uint8_t>(below(256));
          break;
        case 1: {
          Bytes more(1 + below(16));
          for (uint8_t& byte : more) byte = static_cast<uint8_t>(below(256));
          bytes.insert(here, more.begin(), more.end());
          break;
        }
        case 2:
          bytes.erase(here, here + static_cast<ptrdiff_t>(std::min(rest, 1 + below(16))));
          break;
        default: {  // a piece of another one
          const Bytes& other = corpus[below(corpus.size())].second;
          const auto from = other.begin() + static_cast<ptrdiff_t>(below(other.size() + 1));
          bytes.insert(here, from, from + std::min<ptrdiff_t>(other.end() - from, 64));
        }
      }
    }
    bytes.resize(std::min(bytes.size(), GetParam().max));
    const absl::Status status = GetParam().run(bytes);
    ASSERT_TRUE(status.ok()) << "seed " << seed << " round " << round << ": " << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CorpusTest, testing::ValuesIn(Targets()),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace baton
