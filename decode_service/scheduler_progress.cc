// The scheduler's part in progress: what callers hear of sequences that have no token yet (v1::Progress).
#include <algorithm>

#include "decode_service/scheduler.h"

namespace baton::decode_service {

using Phase = Sequence::Phase;

namespace {

// Routers tell their clients less often. It bounds what a fast prefill costs the wire.
constexpr absl::Duration kTellEvery = absl::Milliseconds(50);

bool Same(const v1::Progress& a, const v1::Progress& b) {
  return a.state() == b.state() && a.requests_ahead() == b.requests_ahead() &&
         a.prompt_tokens_done() == b.prompt_tokens_done();
}

}  // namespace

void Scheduler::OnHandoffProgress(Sequence& sequence, const fleet::v1::PrefillProgress& progress) {
  const bool queued = progress.state() == fleet::v1::PrefillProgress::STATE_QUEUED;
  sequence.handed_off.set_state(queued ? v1::Progress::STATE_QUEUED : v1::Progress::STATE_COMPUTING);
  sequence.handed_off.set_requests_ahead(queued ? progress.queue_position() : 0);
  sequence.handed_off.set_prompt_tokens_done(progress.tokens_done());
  sequence.handed_off.set_cached_tokens(progress.cached_tokens());
}

void Scheduler::TellProgress() {
  if (std::ranges::none_of(sequences_, [](const auto& entry) { return entry.second->awaits_first_token(); }))
    return;
  const absl::Time now = clock_.Now();
  uint32_t preempted = 0, prefilling = 0;  // of those that came before
  for (auto& [id, sequence] : sequences_) {
    v1::Progress news;
    int64_t done = sequence->kv().computed_tokens(), cached = sequence->kv().cached_tokens();
    switch (sequence->phase) {
      case Phase::kPreempted:
        news.set_state(v1::Progress::STATE_QUEUED);
        news.set_requests_ahead(preempted++);
        break;
      case Phase::kFetching:
        news.set_state(v1::Progress::STATE_FETCHING);
        cached = done;
        break;
      case Phase::kHandoff:
        news = sequence->handed_off;
        if (news.state() == v1::Progress::STATE_UNSPECIFIED) news.set_state(v1::Progress::STATE_QUEUED);
        cached = std::max<int64_t>(done, news.cached_tokens());
        done = news.state() == v1::Progress::STATE_SHIPPING
                   ? sequence->size()
                   : std::max<int64_t>(done, news.prompt_tokens_done());
        break;
      case Phase::kPrefilling: {
        cached = sequence->prefills_from.value_or(cached);
        const bool waits = prefilling > 0 && done == cached;
        news.set_state(waits ? v1::Progress::STATE_QUEUED : v1::Progress::STATE_COMPUTING);
        news.set_requests_ahead(waits ? prefilling : 0);
        ++prefilling;
        break;
      }
      case Phase::kRunning:
        continue;
    }
    if (!sequence->awaits_first_token() || sequence->congested()) continue;
    news.set_prompt_tokens_done(static_cast<uint32_t>(done));
    news.set_cached_tokens(static_cast<uint32_t>(std::min(cached, done)));
    if (now - sequence->told_at < kTellEvery || Same(news, sequence->told)) continue;
    sequence->told = news;
    sequence->told_at = now;
    fleet::v1::DecodeEvent event;
    *event.mutable_progress() = std::move(news);
    sequence->send(std::move(event));
  }
}

}  // namespace baton::decode_service
