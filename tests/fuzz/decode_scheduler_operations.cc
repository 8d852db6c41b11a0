#include "tests/fuzz/decode_scheduler_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/telemetry/metrics.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "tests/fuzz/operation_sequence.h"
#include "tests/fuzz/scripted_prefill.h"
#include "tests/fuzz/source_folder.h"
#include "tests/fuzz/tiny_engine.h"
#include "text/tokenizer.h"

namespace baton::fuzz {
namespace {

using decode_service::Scheduler;
using decode_service::SchedulerOptions;

constexpr char kTokenizer[] = "models/baton-tiny";
constexpr int64_t kLongest = 100;
constexpr int kPatience = 4000;  // turns in which everything must have ended

// One request and what its client has seen of it.
struct Client {
  std::vector<TokenId> prompt;
  int64_t resumed = 0;
  int64_t max_tokens = 0;
  int64_t tokens = 0;  // seen, resumed ones included
  bool penalised = false;
  bool digests = false;  // asks for logits, which steps then wait for
  bool accepted = false;
  bool finished = false;
  bool congested = false, was_congested = false;
  bool over = false;
};

// The right answer's tokens, up to one that is not.
class HalfRight final : public decode_service::drafting::Drafter {
 public:
  HalfRight(std::vector<TokenId> prompt, bool penalised, uint8_t right)
      : prompt_(std::move(prompt)), penalised_(penalised), right_(right) {}
  decode_service::drafting::DrafterKind kind() const override {
    return decode_service::drafting::DrafterKind::kNgram;
  }
  void Follow(std::span<const TokenId>) override {}
  void Guess(std::span<const TokenId> tokens, size_t most, decode_service::drafting::Draft& draft) override {
    const auto& answer = TheSoloAnswers().Answer(prompt_, penalised_).tokens;
    for (size_t i = 0; i < most; ++i) {
      const size_t at = tokens.size() - prompt_.size() + i;
      const TokenId right = at < answer.size() ? answer[at] : TokenId(5);
      draft.tokens.push_back(i < right_ ? right : TokenId((right.value() + 1) % 60));
      draft.survival.push_back(1);
    }
  }

 private:
  const std::vector<TokenId> prompt_;
  const bool penalised_;
  const size_t right_;
};

class Interpreter final : public OperationSequence {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : OperationSequence(bytes, 24) {
    static const auto tokenizer = text::Tokenizer::Load(InSource(kTokenizer)).value();
    tokenizer_ = tokenizer;
    engine_ = MakeTinyEngine(4 + Next() % 16);
    link_.emplace(engine_->store(), engine_->pool());
    Begin();
  }
  ~Interpreter() override {
    EndWrites();
    scheduler_.reset();
  }

 private:
  void Begin() {
    options_.worker_id = std::string(1, 'd');
    options_.incarnation = Incarnation(options_.incarnation.value() + 1);
    options_.max_sequences = 1 + Next() % 8;
    options_.local_prefill_tokens = Next() % 3 * kBlockTokens;
    options_.step.chunk_tokens = kBlockTokens + Next() % 32;
    options_.step.token_budget = kBlockTokens + Next() % 64;
    options_.speculation = {};
    const uint8_t drafts = Next() % 6;
    if (drafts == 1) options_.speculation = decode_service::SpeculationOf("auto");
    if (drafts > 1) {
      options_.speculation.make = [right = (drafts - 2) * 3](const decode_service::Sequence& sequence) {
        std::vector<std::unique_ptr<decode_service::drafting::Drafter>> drafters;
        const auto prompt = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt_tokens));
        drafters.push_back(std::make_unique<HalfRight>(std::vector<TokenId>(prompt.begin(), prompt.end()),
                                                       sequence.sampling.Penalises(),
                                                       static_cast<uint8_t>(right)));
        return drafters;
      };
    }
    scheduler_ = std::make_unique<Scheduler>(options_, *engine_, *link_, prefill_, clock_, probe_);
  }

  void Do(int operation) override {
    switch (operation) {
      case 0:
      case 1:
      case 2:
        return Submit();
      case 3:
        return Cancel();
      case 4:
        if (Client* client = Someone()) {
          client->congested = !client->congested;
          client->was_congested = true;
        }
        return;
      case 5:
        return clock_.Advance(absl::Milliseconds(400) * Next());
      case 6:
        return Hog();
      case 7:
        return Unhog();
      case 8:
        if (Next() % 8 == 0) Restart();
        return;
      case 9:
        return prefill_.DeliverDamaged(Next(), Next());
      case 10:
        return prefill_.End(Next(), Next() % 2 == 0 ? absl::OkStatus() : absl::UnavailableError("gone"));
      case 11:
        link_->hold = !link_->hold;
        return;
      case 12:
        return EndWrite();
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
        return prefill_.Deliver(Next());
      default:
        scheduler_->Step();
    }
  }

  Client* Someone() {
    if (clients_.empty()) return nullptr;
    return &std::next(clients_.begin(), Next() % clients_.size())->second;
  }

  void Submit() {
    const SequenceId id(next_id_++);
    engine_->pool().Advance(clock_.Now());
    Client& client = clients_[id];
    client.prompt = TinyPrompt(Next() % 3, 1 + Next() % kLongest);
    client.max_tokens = Next() % (SoloAnswers::kMaxAnswer + 1);
    client.resumed = Next() % 3 == 0 ? Next() % (client.max_tokens + 1) : 0;
    client.tokens = client.resumed;
    const int kind = Next();
    client.penalised = kind % 2 == 1;
    client.digests = kind % 3 == 0;
    fleet::v1::DecodeRequest request;
    *request.mutable_fingerprint() = protocol::ToProto(engine_->fingerprint());
    for (TokenId token : client.prompt) request.add_token_ids(token.value());
    const auto& answer = TheSoloAnswers().Answer(client.prompt, client.penalised);
    for (int64_t i = 0; i < client.resumed; ++i) request.add_token_ids(answer.tokens[i].value());
    request.set_resumed_tokens(static_cast<uint32_t>(client.resumed));
    request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(client.max_tokens));
    request.mutable_stop()->set_ignore_eos(true);
    const sampling::Params params = SoloAnswers::ParamsOf(client.penalised);
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(params.temperature);
    sampling.set_repetition_penalty(params.repetition_penalty);
    sampling.set_presence_penalty(params.presence_penalty);
    sampling.set_frequency_penalty(params.frequency_penalty);
    for (const auto& [token, bias] : params.logit_bias)
      (*sampling.mutable_logit_bias())[token.value()] = bias;
    request.mutable_output()->set_token_ids(true);
    request.mutable_output()->set_logits_digest(client.digests);
    request.set_salt(std::string(1, Next() % 2 == 0 ? 'a' : 'b'));
    for (const v1::CacheTtl ttl : {v1::CACHE_TTL_1H, v1::CACHE_TTL_5M}) {
      if (kind % 4 != ttl) continue;
      fleet::v1::CacheLease& lease = *request.add_leases();
      lease.set_ttl(ttl);
      lease.set_tokens(static_cast<uint32_t>(client.prompt.size()));
    }
    for (int targets = Next() % 3; targets > 0; --targets) request.add_prefill()->set_address("p");
    auto sequence = decode_service::ParseRequest(request, *engine_, tokenizer_);
    if (!sequence.ok()) return Wrong(fmt::format("refused: {}", sequence.status().ToString()));
    (*sequence)->send = [this, &client](const fleet::v1::DecodeEvent& event) { Sent(client, event); };
    (*sequence)->finish = [this, &client](const absl::Status& status) { Finished(client, status); };
    (*sequence)->congested = [&client] { return client.congested; };
    const auto size = static_cast<int64_t>(client.prompt.size());
    const bool fits = BlocksFor(size + client.max_tokens) <= engine_->pool().counts().total;
    const bool room = scheduler_->sequences() < options_.max_sequences;
    const bool blocks =
        BlocksFor(size + client.resumed + (client.max_tokens > 0 ? 1 : 0)) <= engine_->pool().available();
    const bool waiting = scheduler_->pending_tokens() > 0;  // perhaps a preempted sequence
    const absl::Status status = scheduler_->Submit(id, *std::move(sequence));
    if (status.ok()) {
      if (!fits || !room) Wrong("admitted without room");
      return;
    }
    client.over = true;
    if (!fits && !absl::IsFailedPrecondition(status)) Wrong(fmt::format("too long: {}", status.ToString()));
    if (fits && !absl::IsResourceExhausted(status)) Wrong(fmt::format("no room: {}", status.ToString()));
    if (fits && room && blocks && !waiting) Wrong(fmt::format("refused without need: {}", status.ToString()));
  }

  void Cancel() {
    if (clients_.empty()) return scheduler_->Cancel(SequenceId(next_id_));  // no sequence has it
    const auto chosen = std::next(clients_.begin(), Next() % clients_.size());
    scheduler_->Cancel(chosen->first);
    chosen->second.over = true;
  }

  void Hog() {
    const auto blocks = engine_->pool().Allocate(Next() % 5);
    if (blocks.ok()) hog_.insert(hog_.end(), blocks->begin(), blocks->end());
  }
  void Unhog() {
    engine_->pool().Release(hog_);
    hog_.clear();
  }

  void EndWrite() {
    if (!link_->EndOne()) Wrong("a block was given back while a link wrote it");
  }
  void EndWrites() {
    while (link_->writing() > 0) EndWrite();
  }

  // All calls are ended, and the budgets are others.
  void Restart() {
    aborting_ = true;
    scheduler_->Abort(absl::UnavailableError("leaving"));
    aborting_ = false;
    for (const auto& [id, client] : clients_) {
      if (!client.over) Wrong(fmt::format("request {} was not told of the end", id.value()));
    }
    EndWrites();
    Look();
    Begin();
  }

  void Sent(Client& client, const fleet::v1::DecodeEvent& event) {
    if (client.over || client.finished) return Wrong("sent after the end");
    switch (event.event_case()) {
      case fleet::v1::DecodeEvent::kAccepted:
        if (client.accepted) Wrong("accepted twice");
        client.accepted = true;
        return;
      case fleet::v1::DecodeEvent::kDelta:
        return Delta(client, event.delta());
      case fleet::v1::DecodeEvent::kFinished:
        client.finished = true;
        if (event.finished().reason() != v1::FINISH_REASON_LENGTH) Wrong("finished for another reason");
        if (event.finished().usage().completion_tokens() != client.max_tokens) Wrong("usage");
        return;
      default:
        Wrong("an empty event");
    }
  }

  void Delta(Client& client, const v1::Delta& delta) {
    const auto& answer = TheSoloAnswers().Answer(client.prompt, client.penalised);
    if (delta.logits_digests_size() != (client.digests ? delta.token_ids_size() : 0)) {
      return Wrong("a digest per token, where they were asked for");
    }
    for (int i = 0; i < delta.token_ids_size(); ++i, ++client.tokens) {
      if (client.tokens >= client.max_tokens) return Wrong("more tokens than asked for");
      if (delta.token_ids(i) != answer.tokens[client.tokens].value() ||
          (client.digests && delta.logits_digests(i) != answer.logits_digests[client.tokens])) {
        return Wrong(fmt::format("token {} is {}, of the engine alone {}", client.tokens, delta.token_ids(i),
                                 answer.tokens[client.tokens].value()));
      }
    }
  }

  void Finished(Client& client, const absl::Status& status) {
    if (client.over) return Wrong("ended twice");
    client.over = true;
    if (aborting_) return;
    if (absl::IsResourceExhausted(status) && client.was_congested) return;  // took nothing for too long
    if (!status.ok()) return Wrong(fmt::format("failed: {}", status.ToString()));
    if (!client.finished || client.tokens != client.max_tokens) Wrong("ended before its last token");
  }

  void Look() override {
    kv::BlockPool& pool = engine_->pool();
    pool.CheckConservation();
    const auto inside = std::ranges::count_if(clients_, [](const auto& entry) { return !entry.second.over; });
    if (static_cast<size_t>(inside) != scheduler_->sequences()) {
      Wrong(fmt::format("{} requests are inside, the scheduler has {}", inside, scheduler_->sequences()));
    }
    if (prefill_.live() > scheduler_->sequences()) Wrong("a call continues without its request");
    // Ended requests are swept with the next step; writes that have begun keep their blocks.
    const int64_t held = pool.counts().held - static_cast<int64_t>(hog_.size());
    if (held < 0) Wrong("blocks of others were released");
    if (inside == 0 && link_->writing() == 0) {
      scheduler_->Step();
      if (const int64_t left = pool.counts().held - static_cast<int64_t>(hog_.size()); left != 0) {
        Wrong(fmt::format("no sequence is here and {} blocks are held", left));
      }
    }
  }

  void ComeToAnEnd() override {
    Unhog();
    link_->hold = false;
    for (auto& [id, client] : clients_) client.congested = false;
    for (int turn = 0; turn < kPatience && sound(); ++turn) {
      EndWrites();
      for (size_t call = 0; call < prefill_.live(); ++call) prefill_.Deliver(call);
      scheduler_->Step();
      Look();
      if (scheduler_->sequences() == 0) break;
    }
    for (const auto& [id, client] : clients_) {
      if (!client.over) Wrong(fmt::format("request {} never ended", id.value()));
    }
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<engine::Engine> engine_;
  FakeClock clock_;
  telemetry::Metrics metrics_;
  decode_service::Probe probe_{metrics_, "held"};
  std::optional<HeldReceiver> link_;
  ScriptedPrefill prefill_{[this] { return Next(); }};
  SchedulerOptions options_;
  std::map<SequenceId, Client> clients_;
  std::vector<BlockId> hog_;
  uint64_t next_id_ = 1;
  bool aborting_ = false;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace

absl::StatusOr<int64_t> RunDecodeSchedulerOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::fuzz
