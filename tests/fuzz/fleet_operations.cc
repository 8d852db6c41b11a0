#include "tests/fuzz/fleet_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/telemetry/metrics.h"
#include "router/fleet/fleet.h"
#include "tests/fuzz/operation_sequence.h"

namespace baton::router::fleet {
namespace {

constexpr int64_t kVocabulary = 100;
const std::string kDigest(32, 'd');

// Far more than any machine has, and far from where sums of a fleet's numbers overflow.
constexpr int64_t kSane = int64_t{1} << 50;

class Interpreter final : public OperationSequence {
 public:
  explicit Interpreter(std::span<const uint8_t> bytes) : OperationSequence(bytes, 16) {}

 private:
  std::string Bytes(size_t max) {
    const size_t size = std::min(max, bytes_.size());
    std::string bytes(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size));
    bytes_ = bytes_.subspan(size);
    return bytes;
  }
  // Small, or as large as a message can say.
  uint64_t Number() {
    const uint8_t byte = Next();
    return byte < 250 ? byte : UINT64_MAX >> (byte - 250);
  }

  void Do(int operation) override {
    const absl::Time now = absl::UnixEpoch() + absl::Milliseconds(100) * step_++;
    switch (operation) {
      case 0:
        if (endpoints_ < 12) {
          fleet_.AddEndpoint(
              {fmt::format("w{}:1", endpoints_), Next() % 2 == 0 ? Role::kDecode : Role::kPrefill});
          ++endpoints_;
        }
        return;
      case 1:
        if (Next() % 4 == 0) fleet_.RemoveEndpoint(Endpoint());
        return;
      case 2:
        return fleet_.OnDown(Endpoint(), absl::UnavailableError("down"));
      case 3:
      case 4:
      case 5:
        return Tell(Endpoint(), Snapshot());
      case 6:
      case 7:
      case 8:
        return Tell(Endpoint(), Delta());
      case 9: {
        baton::fleet::v1::WatchEvent event;
        if (event.ParseFromString(Bytes(Next()))) Tell(Endpoint(), event);
        return;
      }
      case 10:
      case 11:
        return Book(now);
      case 12:
        if (!bookings_.empty()) bookings_[Next() % bookings_.size()].Accepted();
        return;
      case 13:
        if (!bookings_.empty()) bookings_[Next() % bookings_.size()].Refused(now);
        return;
      case 14:
        if (!bookings_.empty()) bookings_[Next() % bookings_.size()].FirstToken(now);
        return;
      default:
        if (!bookings_.empty()) bookings_.erase(bookings_.begin() + Next() % bookings_.size());
        index_.Maintain(now);
    }
  }

  int Endpoint() { return Next() % (endpoints_ + 1); }  // one that was never there included

  void Tell(int endpoint, const baton::fleet::v1::WatchEvent& event) {
    const absl::Status status = fleet_.OnEvent(endpoint, event);
    if (!status.ok() && !absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status) &&
        !absl::IsNotFound(status)) {
      Wrong(fmt::format("an event: {}", status.ToString()));
    }
  }

  baton::fleet::v1::WatchEvent Snapshot() {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(1);
    baton::fleet::v1::Snapshot& snapshot = *event.mutable_snapshot();
    baton::fleet::v1::WorkerInfo& info = *snapshot.mutable_info();
    info.set_worker_id("w");
    info.set_role(static_cast<baton::fleet::v1::Role>(Next() % 3));
    info.set_incarnation(Next() % 4);
    info.set_vocabulary_tokens(Next() % 16 == 0 ? Next() : kVocabulary);
    if (Next() % 4 == 0) info.set_tokenizer_digest(Next() % 8 == 0 ? Bytes(40) : kDigest);
    if (Next() % 4 == 0) info.set_ends_digest(Next() % 8 == 0 ? Bytes(40) : kDigest);
    FillTemplates(*snapshot.mutable_chat_templates());
    info.mutable_fingerprint()->set_weights(Next() % 8 == 0 ? "other" : "w");
    snapshot.set_draining(Next() % 8 == 0);
    FillLoad(*snapshot.mutable_load());
    snapshot.set_stored(Hashes());
    return event;
  }

  baton::fleet::v1::WatchEvent Delta() {
    baton::fleet::v1::WatchEvent event;
    event.set_sequence(Next() % 8 == 0 ? Number() : ++sequence_ % 6 + 2);
    baton::fleet::v1::WatchDelta& delta = *event.mutable_delta();
    if (Next() % 4 == 0) delta.set_draining(Next() % 2 == 0);
    if (Next() % 2 == 0) FillLoad(*delta.mutable_load());
    delta.set_stored(Hashes());
    delta.set_evicted(Hashes());
    if (Next() % 4 == 0) FillTemplates(*delta.mutable_chat_templates());
    return event;
  }

  void FillTemplates(baton::fleet::v1::ChatTemplates& templates) {
    for (int left = static_cast<int>(Next() % 8); left > 0; --left) {
      templates.add_digests(Next() % 4 == 0 ? Bytes(40) : std::string(32, static_cast<char>(Next())));
    }
  }

  void FillLoad(baton::fleet::v1::Load& load) {
    load.set_queued(static_cast<uint32_t>(Number()));
    load.set_queued_tokens(Number());
    load.set_running(static_cast<uint32_t>(Number()));
    load.set_free_blocks(Number());
    load.set_cached_blocks(Number());
    load.set_total_blocks(Number());
    for (const char* router : {"me", "another", "third"}) {
      if (Next() % 2 == 0) continue;
      baton::fleet::v1::Booked& booked = (*load.mutable_booked())[router];
      booked.set_requests(static_cast<uint32_t>(Number()));
      booked.set_tokens(Number());
    }
  }

  // Hashes of few blocks, so that they meet; sometimes with a rest that is no hash.
  std::string Hashes() {
    std::string hashes;
    for (int i = Next() % 4; i > 0; --i) hashes += std::string(16, static_cast<char>(1 + Next() % 12));
    if (Next() % 16 == 0) hashes += "rest";
    return hashes;
  }

  void Book(absl::Time now) {
    const auto view = fleet_.view();
    if (view->decode.empty() || bookings_.size() >= 32) return;
    auto decode = view->decode[Next() % view->decode.size()];
    auto prefill =
        view->prefill.empty() || Next() % 2 == 0 ? nullptr : view->prefill[Next() % view->prefill.size()];
    known_.push_back(decode);
    if (prefill != nullptr) known_.push_back(prefill);
    bookings_.push_back(fleet_.Book(std::move(decode), std::move(prefill), Next(), now));
  }

  void Look() override {
    const auto view = fleet_.view();
    for (const auto& [role, workers] :
         {std::pair(Role::kDecode, &view->decode), std::pair(Role::kPrefill, &view->prefill)}) {
      for (const auto& worker : *workers) {
        if (worker->identity().role != role) Wrong("a worker in the other role's list");
        if (worker->departed()) Wrong("a worker that left is in the view");
        for (const int64_t number : {worker->Requests(), worker->QueuedTokens(), worker->ContextTokens(),
                                     worker->TotalBlocks(), worker->FreeBlocks(), worker->CachedBlocks()}) {
          if (number < 0 || number > kSane) Wrong(fmt::format("a load of {}", number));
        }
      }
    }
    if (view->decode.empty() && fleet_.NoDecodeWorker().message().empty()) Wrong("no worker and no words");
    if (step_ % 16 == 0) index_.CheckConsistency();
  }

  void ComeToAnEnd() override {
    bookings_.clear();
    for (const auto& worker : known_) {
      if (worker->BookedRequests() != 0 || !worker->prompts().booked.empty()) Wrong("a booking is left");
    }
    for (int endpoint = 0; endpoint < endpoints_; ++endpoint) fleet_.RemoveEndpoint(endpoint);
    if (!fleet_.view()->decode.empty() || !fleet_.view()->prefill.empty())
      Wrong("a view without workers is not empty");
    index_.CheckConsistency();
    if (index_.stats().workers != 0) Wrong("the index has workers of no endpoint");
  }

  telemetry::Metrics metrics_;
  Probe probe_{metrics_};
  index::PrefixIndex index_{{.max_bytes = 4 << 20, .max_speculative = 64}};
  Fleet fleet_{{.router_id = "me",
                .endpoints = {{"d:1", Role::kDecode}, {"p:1", Role::kPrefill}},
                .vocabulary = kVocabulary,
                .tokenizer_digest = kDigest,
                .ends_digest = kDigest,
                .template_digest = kDigest},
               probe_,
               &index_};
  int endpoints_ = 2;
  int64_t step_ = 0;
  uint64_t sequence_ = 0;
  std::vector<std::shared_ptr<Worker>> known_;
  std::deque<Booking> bookings_;
};

}  // namespace

absl::StatusOr<int64_t> RunFleetOperations(std::span<const uint8_t> bytes) {
  return Interpreter(bytes).Run();
}

}  // namespace baton::router::fleet
