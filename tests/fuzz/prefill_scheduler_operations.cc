#include "tests/fuzz/prefill_scheduler_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/digest.h"
#include "common/telemetry/metrics.h"
#include "prefill_service/scheduler.h"
#include "tests/fuzz/operation_sequence.h"
#include "tests/fuzz/tiny_engine.h"
#include "transfer/host_link.h"

namespace baton::fuzz {
namespace {

using prefill_service::Job;
using prefill_service::JobId;
using prefill_service::Scheduler;
using prefill_service::SchedulerOptions;

constexpr int64_t kLongest = 120;
constexpr int kLayers = 2;
constexpr int kPatience = 2000;  // steps in which everything must have ended

// One prompt and what its peer has seen of it.
struct Peer {
  std::vector<TokenId> tokens;
  std::vector<kv::ReusableSpan> reusable;
  protocol::Ticket ticket;
  // It takes nothing; or it takes what comes when it is told to, and is full with so many chunks.
  bool congested = false;
  int room = 0, untaken = 0;
  bool eager = false;
  bool over = false;
  bool logits = false;
  std::vector<std::vector<bool>> shipped;  // [block of the ticket][layer]
};

class Interpreter final : public OperationSequence {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : OperationSequence(bytes, 16) {
    engine_ = MakeTinyEngine(4 + Next() % 16);
    Begin();
  }

 private:
  void Begin() {
    options_.chunk_tokens = kBlockTokens * (1 + Next() % 3);
    options_.token_budget = kBlockTokens + Next() % 64;
    options_.max_queued = 1 + Next() % 6;
    options_.max_chunk_bytes = 1 + Next() % 4 * 1500;
    options_.landing_tokens = 1 + 7 * (options_.token_budget % 5);
    options_.chunk_reuse = true;
    scheduler_ = std::make_unique<Scheduler>(options_, *engine_, link_, clock_, probe_);
  }

  void Do(int operation) override {
    switch (operation) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Submit();
      case 4:
        return Cancel();
      case 5:
        if (Peer* peer = Someone()) peer->congested = !peer->congested;
        return;
      case 10:
        if (Peer* peer = Someone()) peer->untaken = 0;
        return;
      case 6:
        return clock_.Advance(absl::Milliseconds(50) * Next());
      case 7:
        return Hog();
      case 8:
        return Unhog();
      case 9:
        if (Next() % 8 == 0) Restart();
        return;
      default:
        scheduler_->Step();
    }
  }

  Peer* Someone() {
    if (peers_.empty()) return nullptr;
    return &std::next(peers_.begin(), Next() % peers_.size())->second;
  }

  // Every other prompt has some, which follow from its number: no byte of old inputs means another thing.
  static std::vector<kv::ReusableSpan> SpansOf(JobId id, int64_t tokens) {
    std::vector<kv::ReusableSpan> spans;
    const auto draw = static_cast<int64_t>(id * 2654435761u % 1021);
    if (id % 2 == 0) return spans;
    for (int64_t begin = draw % 7; begin + kv::kLeastReusableTokens < tokens;) {
      const int64_t end = std::min(tokens - 1, begin + kv::kLeastReusableTokens + draw % 23);
      spans.push_back({begin, end});
      begin = end + draw % 3;
    }
    return spans;
  }

  void Submit() {
    const JobId id = next_id_++;
    Peer& peer = peers_[id];
    peer.tokens = TinyPrompt(Next() % 3, 1 + Next() % kLongest);
    peer.reusable = SpansOf(id, std::ssize(peer.tokens));
    const int64_t blocks = BlocksFor(static_cast<int64_t>(peer.tokens.size()));
    const int64_t first = Next() % blocks;
    peer.ticket = {Incarnation(9), TicketId(id), first,
                   std::vector<Generation>(blocks - first, Generation(id))};
    peer.shipped.assign(blocks - first, std::vector<bool>(kLayers));
    Job job;
    job.tokens = peer.tokens;
    job.reusable = peer.reusable;
    job.root = engine_->RootFor(kv::TenantSalt(Next() % 2 == 0 ? "a" : "b"));
    job.ticket = peer.ticket;
    job.priority = Next() % 5 - 2;
    job.send = [this, &peer](const fleet::v1::PrefillEvent& event) { Sent(peer, event); };
    job.finish = [this, &peer](const absl::Status& status) { Finished(peer, status); };
    peer.room = 1 + Next() % 8;
    peer.eager = Next() % 2 == 0;
    job.congested = [&peer] {
      const bool full = peer.untaken >= peer.room;
      if (full && peer.eager) peer.untaken = 0;  // read before the next check
      return peer.congested || full;
    };
    int64_t needed = blocks;
    for (const kv::ReusableSpan& span : peer.reusable) needed += kv::CanonicalBlocks(span);
    const bool fits = needed <= engine_->pool().counts().total;
    const bool room = scheduler_->queued() < options_.max_queued;
    const absl::Status status = scheduler_->Submit(id, std::move(job));
    if (!status.ok()) peer.over = true;
    if (status.ok() != (fits && room))
      Wrong(fmt::format("a prompt of {} blocks: {}", blocks, status.ToString()));
    if (!fits && !absl::IsFailedPrecondition(status)) Wrong(fmt::format("too long: {}", status.ToString()));
    if (fits && !room && !absl::IsResourceExhausted(status))
      Wrong(fmt::format("a full queue: {}", status.ToString()));
  }

  void Cancel() {
    if (peers_.empty()) return scheduler_->Cancel(next_id_);  // no call has it
    const auto chosen = std::next(peers_.begin(), Next() % peers_.size());
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

  // All calls are ended, and the budgets are others.
  void Restart() {
    aborting_ = true;
    scheduler_->Abort(absl::UnavailableError("leaving"));
    aborting_ = false;
    for (const auto& [id, peer] : peers_) {
      if (!peer.over) Wrong(fmt::format("prompt {} was not told of the end", id));
    }
    Look();
    Begin();
  }

  void Sent(Peer& peer, const fleet::v1::PrefillEvent& event) {
    if (peer.over) return Wrong("sent after the end");
    if (event.has_chunk()) return Chunk(peer, event.chunk());
    if (!event.has_done()) return;
    if (peer.logits) return Wrong("logits twice");
    peer.logits = true;
    const auto& right = TheSoloAnswers().Prefill(peer.tokens, peer.reusable).logits;
    const fleet::v1::PrefillDone& done = event.done();
    if (done.logits() !=
        std::string_view(reinterpret_cast<const char*>(right.data()), right.size() * sizeof(float))) {
      Wrong("other logits than the engine alone");
    }
    if (done.logits_crc32c() != Crc32c(done.logits())) Wrong("checksum of the logits");
    if (done.cached_tokens() + done.computed_tokens() != peer.tokens.size()) Wrong("cached + computed");
  }

  void Chunk(Peer& peer, const fleet::v1::KvChunk& chunk) {
    ++peer.untaken;
    const auto& right = TheSoloAnswers().Prefill(peer.tokens, peer.reusable);
    if (chunk.incarnation() != peer.ticket.incarnation.value() ||
        chunk.ticket_id() != peer.ticket.id.value() || chunk.crc32c() != Crc32c(chunk.data())) {
      return Wrong("a chunk of another ticket, or its checksum is wrong");
    }
    const size_t size = chunk.generations_size() * chunk.layers();
    if (size == 0 || chunk.data().size() % size != 0) return Wrong("a chunk's size");
    const size_t bytes = chunk.data().size() / size;
    size_t at = 0;
    for (int i = 0; i < chunk.generations_size(); ++i) {
      const int64_t index = int64_t{chunk.first_block()} + i;
      const int64_t covered = index - peer.ticket.first_block;
      if (covered < 0 || covered >= peer.ticket.blocks() ||
          chunk.generations(i) != peer.ticket.generations[covered].value()) {
        return Wrong(fmt::format("block {} is not the ticket's", index));
      }
      for (uint32_t layer = chunk.first_layer(); layer < chunk.first_layer() + chunk.layers(); ++layer) {
        if (layer >= kLayers || peer.shipped[covered][layer]) {
          return Wrong(fmt::format("layer {} of block {} twice", layer, index));
        }
        peer.shipped[covered][layer] = true;
        if (!TheSoloAnswers().SameLayer(right, static_cast<int64_t>(peer.tokens.size()), index,
                                        static_cast<int>(layer),
                                        std::string_view(chunk.data()).substr(at, bytes))) {
          return Wrong(fmt::format("layer {} of block {} is not that of the engine alone", layer, index));
        }
        at += bytes;
      }
    }
  }

  void Finished(Peer& peer, const absl::Status& status) {
    if (peer.over) return Wrong("ended twice");
    peer.over = true;
    if (aborting_) return;
    if (!status.ok()) return Wrong(fmt::format("failed: {}", status.ToString()));
    if (!peer.logits) return Wrong("ended without logits");
    for (const auto& layers : peer.shipped) {
      if (std::ranges::count(layers, true) != kLayers) return Wrong("ended before all blocks were shipped");
    }
  }

  void Look() override {
    kv::BlockPool& pool = engine_->pool();
    pool.CheckConservation();
    const auto inside = std::ranges::count_if(peers_, [](const auto& entry) { return !entry.second.over; });
    if (static_cast<size_t>(inside) != scheduler_->queued() + scheduler_->computing()) {
      Wrong(fmt::format("{} prompts are inside, {} queued and {} computing", inside, scheduler_->queued(),
                        scheduler_->computing()));
    }
    const auto hogged = static_cast<int64_t>(hog_.size());
    if (scheduler_->computing() == 0 && pool.counts().held != hogged) {
      Wrong(fmt::format("nothing computes and {} blocks are held", pool.counts().held - hogged));
    }
    if (inside == 0 && scheduler_->pending_tokens() != 0) Wrong("tokens wait and no prompt is inside");
  }

  void ComeToAnEnd() override {
    Unhog();
    for (auto& [id, peer] : peers_) peer.congested = false;
    for (int step = 0; step < kPatience && scheduler_->queued() + scheduler_->computing() > 0; ++step) {
      for (auto& [id, peer] : peers_) peer.untaken = 0;
      scheduler_->Step();
      Look();
    }
    for (const auto& [id, peer] : peers_) {
      if (!peer.over) Wrong(fmt::format("prompt {} never ended", id));
    }
  }

  std::unique_ptr<engine::Engine> engine_;
  FakeClock clock_;
  telemetry::Metrics metrics_;
  prefill_service::Probe probe_{metrics_, "host"};
  transfer::HostLinkSender link_;
  SchedulerOptions options_;
  std::map<JobId, Peer> peers_;
  std::vector<BlockId> hog_;
  JobId next_id_ = 1;
  bool aborting_ = false;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace

absl::StatusOr<int64_t> RunPrefillSchedulerOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::fuzz
