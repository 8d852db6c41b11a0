#include "tests/unit/decode_service/speculation_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "spdlog/spdlog.h"
#include "tests/fakes/direct_prefill_client.h"
#include "tests/fuzz/tiny_engine.h"

namespace baton::decode_service {
namespace {

constexpr int kVocabulary = 2048;
constexpr char kPrefillAddress[] = "prefill:1";

void AddParts(const v1::Delta& delta, Answer& answer) {
  for (const v1::PartEvent& event : delta.parts()) {
    const std::string text = event.event_case() == v1::PartEvent::kText            ? event.text()
                             : event.event_case() == v1::PartEvent::kArgumentsJson ? event.arguments_json()
                                                                                   : "";
    const std::string head = std::to_string(event.part()) + ":" + std::to_string(event.event_case()) + ":";
    if (!text.empty() && !answer.parts.empty() && answer.parts.back().starts_with(head)) {
      answer.parts.back() += text;
    } else {
      answer.parts.push_back(text.empty() ? event.SerializeAsString() : head + text);
    }
  }
}

template <typename Client>
void Hear(Client& client, const fleet::v1::DecodeEvent& event, bool even) {
  Answer& answer = client.answer;
  if (event.has_delta()) {
    const v1::Delta& delta = event.delta();
    for (const auto& token : delta.prompt_logprobs()) answer.prompt.push_back(token.SerializeAsString());
    if (delta.tokens() > 0) ++answer.deltas;
    EXPECT_EQ(delta.tokens(), static_cast<uint32_t>(delta.token_ids_size()));
    if (even) {
      EXPECT_TRUE(delta.tokens() == 1 || (delta.tokens() == 0 && delta.prompt_logprobs_size() > 0));
    }
    answer.tokens.insert(answer.tokens.end(), delta.token_ids().begin(), delta.token_ids().end());
    answer.digests.insert(answer.digests.end(), delta.logits_digests().begin(), delta.logits_digests().end());
    for (const auto& step : delta.logprobs()) answer.logprobs.push_back(step.SerializeAsString());
    for (const auto& trace : delta.sampling()) answer.traces.push_back(trace.SerializeAsString());
    answer.text += delta.text();
    AddParts(delta, answer);
    client.last_drafted = event.drafted_tokens();
    client.last_accepted = event.accepted_tokens();
  }
  if (event.has_finished()) {
    answer.step_seconds = event.steps().seconds();
    v1::Finished finished = event.finished();
    EXPECT_EQ(finished.usage().drafted_tokens(), client.last_drafted);
    EXPECT_EQ(finished.usage().accepted_tokens(), client.last_accepted);
    answer.drafted = client.drafted + finished.usage().drafted_tokens();
    answer.accepted = client.accepted + finished.usage().accepted_tokens();
    v1::Usage& usage = *finished.mutable_usage();
    usage.clear_drafted_tokens();
    usage.clear_accepted_tokens();
    usage.clear_decode_cached_tokens();
    usage.clear_prefill_cached_tokens();
    finished.clear_relay();
    finished.clear_timing();
    answer.finish = finished.ShortDebugString();
  }
}

std::unique_ptr<engine::Engine> MakeEngine(const RigOptions& options, int64_t blocks, uint64_t seed,
                                           bool drafts) {
  if (options.model_folder.empty()) {
    return fuzz::MakeTinyEngine(blocks, kVocabulary, options.backend, seed, drafts);
  }
  engine::EngineOptions wanted = {.model_folder = options.model_folder,
                                  .backend = options.backend,
                                  .threads = options.tp,
                                  .tp = options.tp,
                                  .kv_blocks = blocks,
                                  .key_dtype = options.key_dtype,
                                  .value_dtype = options.value_dtype,
                                  .weights = options.weights};
  if (drafts) wanted.draft_weights = model::WeightPrecision::kInt4;
  auto engine = engine::Engine::Load(wanted);
  BATON_CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

}  // namespace

struct SpeculationRig::PrefillWorker {
  std::unique_ptr<engine::Engine> engine;  // null: no hand-offs
  testing::DirectPrefillClient client;
};

SpeculationRig::SpeculationRig(const RigOptions& options)
    : engine_(MakeEngine(options, options.blocks, fuzz::kTinySeed, options.drafts == DraftModel::kSelf)),
      vocabulary_(text::GrammarVocabulary::Make(*Tokenizer()).value()),
      prefill_(std::make_unique<PrefillWorker>()),
      clock_(options.tick) {
  spdlog::set_level(spdlog::level::off);  // broken links are meant
  SchedulerOptions wanted;
  wanted.worker_id = "d";
  wanted.max_sequences = 16;
  wanted.speculation = options.speculation;
  wanted.step = {.chunk_tokens = 32, .token_budget = 64, .slo_tpot = options.slo_tpot};
  // A draft step takes a tenth of the model's.
  wanted.draft_model.cost = {.base = 1e-3, .sequence = 5e-6, .context = 5e-9, .token = 5e-6, .pair = 1e-10};
  if (options.drafts == DraftModel::kSelf) wanted.draft_model.engine = engine_.get();
  if (options.drafts == DraftModel::kRight || options.drafts == DraftModel::kWrong) {
    // Too small for all sequences at once.
    drafts_ =
        MakeEngine(options, 16, fuzz::kTinySeed + (options.drafts == DraftModel::kWrong ? 4 : 0), false);
    wanted.draft_model.engine = drafts_.get();
  }
  if (options.handoffs) {
    wanted.local_prefill_tokens = 4;
    prefill_->engine = MakeEngine(options, 128, fuzz::kTinySeed, false);
    prefill_->client.AddWorker(kPrefillAddress, *prefill_->engine, {.chunk_tokens = 32, .token_budget = 64});
    prefill_->client.SetFault(kPrefillAddress, [this](int, fleet::v1::PrefillEvent&, bool&) {
      const bool breaks = disturb_ != 0 && random_() % 40 == 0;
      return breaks ? absl::UnavailableError("the link broke") : absl::OkStatus();
    });
  }
  scheduler_ = std::make_unique<Scheduler>(wanted, *engine_, link_, prefill_->client, clock_, probe_);
}

SpeculationRig::~SpeculationRig() = default;

size_t SpeculationRig::handoffs() const { return prefill_->client.calls_started(); }

const std::shared_ptr<const text::Tokenizer>& SpeculationRig::Tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny").value();
  return tokenizer;
}

std::vector<Answer> SpeculationRig::Run(const std::vector<fleet::v1::DecodeRequest>& requests,
                                        uint64_t disturb) {
  disturb_ = disturb;
  random_.seed(static_cast<uint32_t>(disturb));
  const auto one_in = [&](uint32_t n) { return disturb != 0 && random_() % n == 0; };
  std::vector<Client> clients(requests.size());
  std::vector<BlockId> hog;
  size_t submitted = 0;
  for (int step = 0, idle = 0; step < 20'000 && idle < 10'000'000;) {
    if (submitted < requests.size() && (disturb == 0 || one_in(3)) &&
        Submit(requests[submitted], clients[submitted])) {
      ++submitted;
    }
    for (size_t i = 0; i < submitted; ++i) {
      Client& client = clients[i];
      if (client.answer.over) continue;
      if (one_in(30)) client.congested = !client.congested;
      if (one_in(40)) client.moves = true;
      if (client.moves && client.inside) Leave(client);
      if (!client.inside) Submit(requests[i], client);
    }
    if (one_in(20)) {
      if (const auto more = engine_->pool().Allocate(random_() % 4); more.ok()) {
        hog.insert(hog.end(), more->begin(), more->end());
      }
    }
    if (one_in(10)) engine_->pool().Release(std::exchange(hog, {}));
    while (!one_in(2) && late_masks_.RunOne()) {
    }
    const bool stepped = scheduler_->Step();
    if (prefill_->client.Pump() || stepped) {
      ++step;
    } else {  // they wait for masks, or for what the disturbance does next
      ++idle;
      std::this_thread::yield();
    }
    if (disturb != 0) CheckPools();
    if (drafts_ != nullptr) draft_blocks_ = std::max(draft_blocks_, drafts_->pool().counts().held);
    if (submitted == requests.size() &&
        std::ranges::all_of(clients, [](const Client& client) { return client.answer.over; })) {
      break;
    }
  }
  engine_->pool().Release(hog);
  scheduler_->Step();
  ExpectNothingHeld();
  std::vector<Answer> answers;
  for (Client& client : clients) answers.push_back(std::move(client.answer));
  return answers;
}

void SpeculationRig::Abandon(const std::vector<fleet::v1::DecodeRequest>& requests) {
  disturb_ = 0;
  for (const fleet::v1::DecodeRequest& request : requests) {
    Client client;
    ASSERT_TRUE(Submit(request, client));
    while (!client.answer.over && client.answer.tokens.size() < 3) scheduler_->Step();
    ASSERT_FALSE(client.answer.over) << "it was to be cancelled";
    Leave(client);
  }
  scheduler_->Step();
  ExpectNothingHeld();
}

void SpeculationRig::Idle(absl::Duration time) {
  clock_.Advance(time);
  EXPECT_FALSE(scheduler_->Step());
}

void SpeculationRig::CheckPools() {
  engine_->pool().CheckConservation();
  if (drafts_ != nullptr) drafts_->pool().CheckConservation();
  if (prefill_->engine != nullptr) prefill_->engine->pool().CheckConservation();
}

void SpeculationRig::ExpectNothingHeld() {
  // Calls that were given up are over at the workers, too.
  while (prefill_->client.Pump()) scheduler_->Step();
  EXPECT_EQ(prefill_->client.live_calls(), 0u);
  EXPECT_EQ(engine_->pool().counts().held, 0) << "blocks that a draft took are still held";
  if (prefill_->engine != nullptr) {
    EXPECT_EQ(prefill_->engine->pool().counts().held, 0);
  }
  if (drafts_ != nullptr) {
    EXPECT_EQ(drafts_->pool().counts().held, 0) << "a sequence is gone, and its draft model's KV is not";
    EXPECT_EQ(drafts_->pool().counts().cached, 0) << "KV of a draft model was published";
    EXPECT_GT(draft_blocks_, 0);
  }
}

bool SpeculationRig::Submit(fleet::v1::DecodeRequest request, Client& client) {
  *request.mutable_fingerprint() = protocol::ToProto(engine_->fingerprint());
  for (const int32_t token : client.answer.tokens) request.add_token_ids(token);
  if (prefill_->engine != nullptr) {
    fleet::v1::PrefillTarget& target = *request.add_prefill();
    target.set_worker("p");
    target.set_address(kPrefillAddress);
  }
  request.set_resumed_tokens(static_cast<uint32_t>(client.answer.tokens.size()));
  request.set_prompt_logprobs_sent(static_cast<uint32_t>(client.answer.prompt.size()));
  auto parsed = ParseRequest(request, *engine_, Tokenizer(), markers_);
  EXPECT_TRUE(parsed.ok()) << parsed.status() << request.DebugString();
  if (!parsed.ok()) {
    client.answer.over = true;
    return true;
  }
  Sequence& sequence = **parsed;
  sequence.send = [&client, even = request.output().even_frames()](const fleet::v1::DecodeEvent& event) {
    Hear(client, event, even);
  };
  sequence.finish = [&client](const absl::Status& status) {
    client.answer.over = true;
    client.inside = false;
    if (!status.ok()) client.answer.failure = status.ToString();
  };
  sequence.congested = [&client] { return client.congested; };
  if (AnswerGrammar* const grammar = sequence.outbox->grammar();
      grammar != nullptr && !sequence.pending_end.has_value()) {
    auto found = compiled_.find(grammar->lark());
    if (found == compiled_.end())
      found = compiled_.emplace(grammar->lark(), vocabulary_->Compile(grammar->lark()).value()).first;
    grammar->Begin(vocabulary_, found->second.Fork(), next_id_ % 2 == 0 ? late_masks_ : masks_);
  }
  client.id = SequenceId(next_id_++);
  client.inside = true;
  if (scheduler_->Submit(client.id, *std::move(parsed)).ok()) return true;
  client.inside = false;
  return false;
}

void SpeculationRig::Leave(Client& client) {
  client.moves = client.inside = client.congested = false;
  scheduler_->Cancel(client.id);
  client.drafted += std::exchange(client.last_drafted, 0);
  client.accepted += std::exchange(client.last_accepted, 0);
}

void ExpectSameAnswer(const fleet::v1::DecodeRequest& request, const Answer& plain, const Answer& drafted) {
  const std::string what = request.ShortDebugString();
  ASSERT_TRUE(drafted.over) << "it never ended: " << what;
  ASSERT_EQ(plain.failure, drafted.failure) << what;
  ASSERT_EQ(plain.tokens, drafted.tokens) << what;
  ASSERT_EQ(plain.digests, drafted.digests) << what;
  ASSERT_EQ(plain.logprobs, drafted.logprobs) << what;
  ASSERT_EQ(plain.traces, drafted.traces) << what;
  if (request.output().explain()) {
    ASSERT_EQ(drafted.traces.size(), drafted.tokens.size()) << what;
  }
  ASSERT_EQ(plain.prompt, drafted.prompt) << what;
  ASSERT_EQ(plain.text, drafted.text) << what;
  ASSERT_EQ(plain.parts, drafted.parts) << what;
  ASSERT_EQ(plain.finish, drafted.finish) << what;
  ASSERT_LE(drafted.accepted, drafted.drafted) << what;
  ASSERT_LE(drafted.accepted, drafted.tokens.size()) << what;
  ASSERT_EQ(plain.drafted, 0u);
}

}  // namespace baton::decode_service
