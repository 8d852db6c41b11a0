// The relay without a network: a real decode scheduler, real prefill schedulers and three engines, in one
// thread, over scripted links. For tests that take turns.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/base/check.h"
#include "decode_service/scheduler.h"
#include "engine/solo.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "tests/fakes/direct_prefill_client.h"
#include "text/tokenizer.h"

namespace baton::testing {

constexpr char kShippedModel[] = BATON_SOURCE_DIR "/models/baton-tiny";

inline std::unique_ptr<engine::Engine> MakeEngine(
    int64_t blocks, const std::string& backend = "cpu", const std::string& model = kShippedModel,
    model::WeightPrecision weights = model::WeightPrecision::kStored) {
  auto engine = engine::Engine::Load(
      {.model_folder = model, .backend = backend, .threads = 1, .kv_blocks = blocks, .weights = weights});
  BATON_CHECK(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> digests;
  std::vector<v1::StepLogprobs> prompt;
  std::string text;
  bool accepted = false;
  std::optional<v1::Finished> finished;
  std::optional<absl::Status> status;
};

struct Setup {
  int64_t decode_blocks = 512;
  int64_t prefill_blocks = 512;
  int64_t chunk = 64;
  int64_t budget = 128;
  int64_t local_prefill = 16;
  size_t max_sequences = 256;
  std::string backend = "cpu";
  std::string model = kShippedModel;
  model::WeightPrecision weights = model::WeightPrecision::kStored;
  bool logits_digests = true;
  // The decode worker's clock; outlives the relay. Null: the machine's.
  const Clock* clock = nullptr;
  double slo_tpot = forecast::kDefaultSloTpot;
  forecast::StepCost step_cost;
  bool chunk_reuse = false;
};

// The link into a decode worker's blocks, which on a GPU does not wait for the step under way: fails the test
// if a block that somebody held when that step had been launched is written for somebody else.
class WatchedReceiver final : public transfer::LinkReceiver {
 public:
  explicit WatchedReceiver(engine::Engine& engine) : engine_(engine) {}

  // The scheduler has taken a step; one may be under way now.
  void Stepped(bool under_way) {
    const kv::BlockPool& pool = engine_.pool();
    held_.assign(under_way ? static_cast<size_t>(pool.counts().total) : 0, std::nullopt);
    for (size_t b = 0; b < held_.size(); ++b) {
      const BlockId block(static_cast<uint32_t>(b));
      if (pool.references(block) > 0) held_[b] = pool.generation(block);
    }
  }
  int64_t beside_steps() const { return beside_steps_; }

  std::string_view name() const override { return link_.name(); }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view from, transfer::Pieces pieces,
               Done done) override {
    beside_steps_ += held_.empty() ? 0 : 1;
    for (const auto piece : pieces) {
      const auto b = static_cast<size_t>((piece.data() - engine_.store().block(BlockId(0))) /
                                         engine_.store().layout().block_bytes());
      if (b >= held_.size() || !held_[b].has_value()) continue;
      EXPECT_EQ(held_[b], engine_.pool().generation(BlockId(static_cast<uint32_t>(b))))
          << "block " << b << " is written for others while a step that may use it is under way";
    }
    link_.Receive(chunk, from, pieces, std::move(done));
  }

 private:
  engine::Engine& engine_;
  transfer::HostLinkReceiver link_;
  std::vector<std::optional<Generation>> held_;  // as the step under way found them; empty if there is none
  int64_t beside_steps_ = 0;
};

class Relay {
 public:
  explicit Relay(const Setup& setup)
      : logits_digests_(setup.logits_digests),
        decode_(MakeEngine(setup.decode_blocks, setup.backend, setup.model, setup.weights)),
        prefill_a_(MakeEngine(setup.prefill_blocks, setup.backend, setup.model, setup.weights)),
        prefill_b_(MakeEngine(setup.prefill_blocks, setup.backend, setup.model, setup.weights)),
        tokenizer_(text::Tokenizer::Load(kShippedModel).value()),
        probe_(metrics_, "host"),
        link_(*decode_),
        scheduler_(
            {.worker_id = "decode-0",
             .incarnation = Incarnation(1),
             .max_sequences = setup.max_sequences,
             .local_prefill_tokens = setup.local_prefill,
             .step = {.chunk_tokens = setup.chunk, .token_budget = setup.budget, .slo_tpot = setup.slo_tpot},
             .step_cost = setup.step_cost,
             .chunk_reuse = setup.chunk_reuse},
            *decode_, link_, client_, setup.clock != nullptr ? *setup.clock : clock_, probe_) {
    const prefill_service::SchedulerOptions options = {
        .chunk_tokens = setup.chunk, .token_budget = setup.budget, .chunk_reuse = setup.chunk_reuse};
    client_.AddWorker("a", *prefill_a_, options);
    client_.AddWorker("b", *prefill_b_, options);
  }

  // Returns the sequence's id; the answer fills up while the relay runs.
  SequenceId Ask(const std::vector<TokenId>& prompt, const sampling::Params& params, int64_t max_tokens,
                 Answer& answer, std::vector<std::string> targets = {"a", "b"},
                 const std::string& salt = "tenant", std::span<const TokenId> stop_tokens = {},
                 std::vector<kv::PrefixLease> leases = {}, std::vector<kv::ReusableSpan> reusable = {}) {
    auto sequence = std::make_unique<decode_service::Sequence>();
    sequence->request_id = "test";
    sequence->tokens = prompt;
    sequence->prompt_tokens = static_cast<int64_t>(prompt.size());
    sequence->max_tokens = max_tokens;
    sequence->salt = salt;
    sequence->leases = std::move(leases);
    sequence->sampling = params;
    sequence->history.AddPrompt(prompt);
    for (const std::string& target : targets) {
      fleet::v1::PrefillTarget proto;
      proto.set_worker(target);
      proto.set_address(target);
      sequence->targets.push_back(proto);
    }
    v1::StopConditions stop;
    stop.set_max_tokens(static_cast<uint32_t>(max_tokens));
    stop.set_ignore_eos(true);
    for (TokenId token : stop_tokens) stop.add_stop_token_ids(token.value());
    v1::OutputOptions output;
    output.set_token_ids(true);
    output.set_logits_digest(logits_digests_);
    output.set_prompt_logprobs(prompt_logprobs_);
    output.set_top_logprobs(prompt_logprobs_ ? 2 : 0);
    sequence->tells_prompt = prompt_logprobs_;
    sequence->prompt_told = prompt_told_;
    sequence->answer =
        std::make_unique<decode_service::AnswerText>(tokenizer_, stop, output, 0, decode_->config().eos);
    sequence->chain = kv::PromptChain(decode_->RootFor(kv::TenantSalt(salt)), std::move(reusable));
    sequence->lease.kv = std::make_unique<engine::SequenceKv>(decode_->pool(), sequence->chain,
                                                              decode_service::SharingOf(*sequence));
    sequence->send = [&answer](const fleet::v1::DecodeEvent& event) {
      if (event.has_accepted()) answer.accepted = true;
      if (event.has_finished()) answer.finished = event.finished();
      for (int32_t id : event.delta().token_ids()) answer.tokens.emplace_back(id);
      for (uint32_t digest : event.delta().logits_digests()) answer.digests.push_back(digest);
      answer.text += event.delta().text();
      answer.prompt.insert(answer.prompt.end(), event.delta().prompt_logprobs().begin(),
                           event.delta().prompt_logprobs().end());
    };
    sequence->finish = [&answer](const absl::Status& status) { answer.status = status; };
    sequence->congested = [this] { return client_congested_; };
    const SequenceId id(next_id_++);
    if (absl::Status admitted = scheduler_.Submit(id, std::move(sequence)); !admitted.ok())
      answer.status = admitted;
    return id;
  }

  // One round of everybody. False when nothing is left to do.
  bool Turn() {
    const bool pumped = client_.Pump();
    const bool stepped = scheduler_.Step();
    link_.Stepped(scheduler_.step_in_flight());
    return stepped || pumped;
  }
  void RunUntilIdle() {
    for (int idle = 0; idle < 3;) idle = Turn() ? 0 : idle + 1;
  }

  void ExpectNothingHeld() {
    for (engine::Engine* engine : {decode_.get(), prefill_a_.get(), prefill_b_.get()}) {
      EXPECT_EQ(engine->pool().counts().held, 0);
      engine->pool().CheckConservation();
    }
    EXPECT_EQ(scheduler_.sequences(), 0u);
    EXPECT_EQ(client_.live_calls(), 0u);
  }

  engine::Engine& decode() { return *decode_; }
  engine::Engine& prefill_a() { return *prefill_a_; }
  DirectPrefillClient& client() { return client_; }
  decode_service::Scheduler& scheduler() { return scheduler_; }
  const WatchedReceiver& link() const { return link_; }
  telemetry::Metrics& metrics() { return metrics_; }
  void SetClientCongested(bool congested) { client_congested_ = congested; }
  // The next sequences tell of their prompts from this token on, or do not.
  void TellPrompts(bool tell, int64_t from = 0) {
    prompt_logprobs_ = tell;
    prompt_told_ = from;
  }

 private:
  const bool logits_digests_;
  std::unique_ptr<engine::Engine> decode_, prefill_a_, prefill_b_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  MonotonicClock clock_;
  telemetry::Metrics metrics_;
  decode_service::Probe probe_;
  WatchedReceiver link_;
  DirectPrefillClient client_;
  decode_service::Scheduler scheduler_;
  uint64_t next_id_ = 1;
  bool client_congested_ = false;
  bool prompt_logprobs_ = false;
  int64_t prompt_told_ = 0;
};

}  // namespace baton::testing
