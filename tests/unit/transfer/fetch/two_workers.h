// Two engines of a small model, one that holds blocks and one that lacks them, joined without a network. The
// bytes of a block are made of its hash, so that any test can say whether a block is right.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/sequence_kv.h"
#include "tests/fakes/direct_fetch_client.h"
#include "transfer/fetch/fetcher.h"
#include "transfer/fetch/peer_server.h"
#include "transfer/host_link.h"

namespace baton::fetch {

// A link whose writes end when the test says so.
class LateReceiver final : public transfer::LinkReceiver {
 public:
  std::string_view name() const override { return "host"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
               Done done) override {
    if (!late) {
      host_.Receive(chunk, "", pieces, std::move(done));
    } else {
      writes.push_back([this, &chunk, pieces, done = std::move(done)]() mutable {
        host_.Receive(chunk, "", pieces, std::move(done));
      });
    }
  }
  bool late = false;
  std::vector<absl::AnyInvocable<void()>> writes;

 private:
  transfer::HostLinkReceiver host_;
};

class TwoWorkersTest : public ::testing::Test {
 protected:
  static constexpr char kModel[] = BATON_SOURCE_DIR "/tests/golden/models/data/llama-gqa-tied";
  static constexpr char kSalt[] = "salt";

  static std::unique_ptr<engine::Engine> MakeEngine(int64_t blocks) {
    return engine::Engine::Load(
               {.model_folder = kModel, .backend = "reference", .threads = 1, .kv_blocks = blocks})
        .value();
  }

  explicit TwoWorkersTest(int64_t blocks = 24, PeerServerOptions options = {})
      : there_(MakeEngine(blocks)), here_(MakeEngine(blocks)) {
    options.max_chunk_bytes = options.step_bytes = there_->store().layout().block_bytes();
    server_ = std::make_unique<PeerServer>(options, *there_, sender_, server_probe_);
    client_.AddPeer("there", *there_, *server_);
    MakeFetcher({});
  }

  void MakeFetcher(FetcherOptions options) {
    options.worker_id = "here";
    options.incarnation = Incarnation(77);
    fetcher_ = std::make_unique<Fetcher>(options, *here_, receiver_, client_, clock_, probe_);
  }

  static std::vector<TokenId> Tokens(uint32_t seed, int64_t blocks) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i <= blocks * kBlockTokens; ++i) {
      tokens.emplace_back(static_cast<int32_t>(random() % 200));
    }
    return tokens;
  }
  static std::vector<kv::BlockHash> Chain(engine::Engine& engine, std::span<const TokenId> tokens,
                                          const std::string& salt = kSalt) {
    return kv::HashChain(engine.RootFor(kv::TenantSalt(salt)), tokens);
  }

  // The worker has computed the first `blocks` blocks of `tokens`.
  static void Hold(engine::Engine& engine, const std::vector<TokenId>& tokens, int64_t blocks,
                   std::vector<kv::PrefixLease> leases = {}, absl::Time now = absl::UnixEpoch()) {
    engine.pool().Advance(now);
    engine::SequenceKv kv(engine.pool(), engine.RootFor(kv::TenantSalt(kSalt)));
    kv.Lease(std::move(leases), now);
    ASSERT_TRUE(kv.Reserve(std::span(tokens).first(blocks * kBlockTokens + 1), blocks * kBlockTokens).ok());
    const auto chain = Chain(engine, tokens);
    for (int64_t i = 0; i < blocks; ++i) {
      std::byte* bytes = engine.store().block(kv.blocks()[i]);
      for (int64_t at = 0; at < engine.store().layout().block_bytes(); ++at) bytes[at] = ByteOf(chain[i], at);
    }
    kv.Computed(tokens, blocks * kBlockTokens);
  }

  // Expects exactly the first `blocks` blocks of `tokens` to be published on the engine, and right.
  static void ExpectHeldRight(engine::Engine& engine, const std::vector<TokenId>& tokens, int64_t blocks) {
    const auto chain = Chain(engine, tokens);
    const auto run = engine.pool().AcquirePrefix(chain);
    EXPECT_EQ(std::ssize(run), blocks);
    for (size_t i = 0; i < run.size(); ++i) {
      const std::byte* bytes = engine.store().block(run[i]);
      for (int64_t at = 0; at < engine.store().layout().block_bytes(); ++at) {
        ASSERT_EQ(bytes[at], ByteOf(chain[i], at)) << "block " << i << ", byte " << at;
      }
    }
    engine.pool().Release(run);
  }
  static std::byte ByteOf(const kv::BlockHash& hash, int64_t at) {
    return static_cast<std::byte>(hash.bytes()[at % kv::BlockHash::kBytes] + at / kv::BlockHash::kBytes);
  }

  static fleet::v1::PeerPrefix Peer(int64_t blocks) {
    fleet::v1::PeerPrefix peer;
    peer.set_worker("there");
    peer.set_address("there");
    peer.set_blocks(static_cast<uint32_t>(blocks));
    return peer;
  }

  void PumpAll() {
    while (client_.Pump()) {
    }
  }
  void ExpectNothingHeld() {
    for (engine::Engine* engine : {there_.get(), here_.get()}) {
      engine->pool().CheckConservation();
      EXPECT_EQ(engine->pool().counts().held, 0);
    }
    EXPECT_EQ(server_->serving(), 0u);
    EXPECT_EQ(fetcher_->running(), 0);
  }
  bool HasMetric(const std::string& line) const {
    return metrics_.Text().find(line + "\n") != std::string::npos;
  }

  FakeClock clock_;
  telemetry::Metrics metrics_, server_metrics_;
  Probe probe_{metrics_, "host"}, server_probe_{server_metrics_, "host"};
  std::unique_ptr<engine::Engine> there_, here_;
  transfer::HostLinkSender sender_;
  LateReceiver receiver_;
  std::unique_ptr<PeerServer> server_;
  baton::testing::DirectFetchClient client_;
  std::unique_ptr<Fetcher> fetcher_;
};

}  // namespace baton::fetch
