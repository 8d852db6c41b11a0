#include "transfer/fetch/fetcher.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "spdlog/spdlog.h"

namespace baton::fetch {
namespace {

constexpr forecast::LinearFit<3>::Features kScale = {1, 256, 1};

forecast::LinearFit<3>::Features Features(int64_t blocks) { return {1, static_cast<double>(blocks), 0}; }

}  // namespace

Fetcher::Fetcher(FetcherOptions options, engine::Engine& engine, transfer::LinkReceiver& link,
                 FetchClient& client, const Clock& clock, FetchProbe& probe)
    : options_(std::move(options)),
      engine_(engine),
      link_(link),
      client_(client),
      clock_(clock),
      probe_(probe),
      fingerprint_(protocol::ToProto(engine.fingerprint())),
      seconds_({options_.first_base, options_.first_block, 0}, kScale) {}

double Fetcher::Seconds(int64_t blocks) const { return seconds_.Predict(Features(blocks)); }

bool Fetcher::Worthwhile(const fleet::v1::PeerPrefix& peer, int64_t blocks, double wait, double saved) const {
  if (blocks < 1 || running_ >= options_.max_fetches) return false;
  if (peer.address().empty() || peer.worker() == options_.worker_id) return false;
  return options_.always || Seconds(blocks) < wait + saved;
}

bool Fetcher::WorthWaiting(const Fetch& fetch, double saved) const {
  const double elapsed = absl::ToDoubleSeconds(clock_.Now() - fetch.started());
  if (options_.always || elapsed < absl::ToDoubleSeconds(options_.patience)) return true;
  const int64_t blocks = fetch.found().value_or(fetch.asked());
  double left;
  if (fetch.committed() > 0) {  // at its own pace
    left = elapsed * static_cast<double>(blocks - fetch.committed()) / static_cast<double>(fetch.committed());
  } else {  // late as it is, as long again
    left = std::max(Seconds(blocks) - elapsed, elapsed);
  }
  return left < saved;
}

std::unique_ptr<Fetch> Fetcher::Start(const fleet::v1::PeerPrefix& peer, const std::string& request_id,
                                      std::span<const kv::BlockHash> hashes, std::span<const BlockId> blocks,
                                      double wait, double saved, Fetch::Callbacks callbacks,
                                      const telemetry::TraceContext& trace) {
  BATON_CHECK(!hashes.empty() && hashes.size() == blocks.size());
  protocol::Ticket ticket{options_.incarnation, TicketId(next_ticket_++), 0, {}};
  fleet::v1::FetchRequest request;
  request.set_request_id(request_id);
  *request.mutable_fingerprint() = fingerprint_;
  for (size_t i = 0; i < hashes.size(); ++i) {
    request.mutable_hashes()->append(hashes[i].bytes());
    ticket.generations.push_back(engine_.pool().generation(blocks[i]));
  }
  const absl::Time now = clock_.Now();
  auto fetch = std::make_unique<Fetch>(
      peer.worker(), std::move(ticket), blocks, engine_.store(), link_, now, std::move(callbacks),
      [this](const Fetch& ended, const absl::Status& status) { Over(ended, status); });
  ++running_;
  probe_.Began();
  const absl::Duration patience =
      options_.always ? options_.longest : std::max(options_.patience, absl::Seconds(wait + saved));
  fetch->Start(client_, peer.address(), std::move(request), std::min(patience, options_.longest), trace);
  return fetch;
}

void Fetcher::Over(const Fetch& fetch, const absl::Status& status) {
  --running_;
  const absl::Duration took = clock_.Now() - fetch.started();
  FetchProbe::Outcome outcome = FetchProbe::Outcome::kFailed;
  if (status.ok()) {
    outcome = fetch.committed() == fetch.asked() ? FetchProbe::Outcome::kComplete
              : fetch.committed() > 0            ? FetchProbe::Outcome::kPartial
                                                 : FetchProbe::Outcome::kMissed;
    if (fetch.committed() > 0) {
      seconds_.Observe(Features(fetch.committed()), absl::ToDoubleSeconds(took));
    }
  } else if (absl::IsCancelled(status)) {
    outcome = FetchProbe::Outcome::kGivenUp;
  } else if (absl::IsDeadlineExceeded(status)) {
    // It took at least this long.
    if (absl::ToDoubleSeconds(took) > Seconds(fetch.asked())) {
      seconds_.Observe(Features(fetch.asked()), absl::ToDoubleSeconds(took));
    }
    outcome = FetchProbe::Outcome::kGivenUp;
  } else if (absl::IsResourceExhausted(status)) {
    outcome = FetchProbe::Outcome::kRefused;
  } else {
    spdlog::warn("fetch from {} failed with {} of {} blocks here, the rest is computed: {}", fetch.worker(),
                 fetch.committed(), fetch.asked(), status.ToString());
  }
  probe_.Ended(outcome, fetch.committed(), fetch.received_bytes(), took);
}

}  // namespace baton::fetch
