#include "decode_service/draft_probe.h"

#include <algorithm>
#include <string>

namespace baton::decode_service {
namespace {

// In the order of kRequestKinds.
constexpr std::array kRequestNames = {"constrained", "tools", "thinking", "text"};
static_assert(kRequestNames.size() == kRequestKinds.size());

constexpr std::array kPositionNames = {"1", "2", "3", "4", "5-8", "9-16", "17+"};

size_t ClassOf(size_t position) { return position < 4 ? position : position < 8 ? 4 : position < 16 ? 5 : 6; }

}  // namespace

DraftProbe::DraftProbe(telemetry::Metrics& metrics)
    : model_seconds_(
          metrics.Counter("baton_decode_draft_model_seconds_total",
                          "Seconds in which a model drafted, or computed what it lacked of prompts.")),
      model_blocks_(metrics.Gauge("baton_decode_draft_model_blocks", "KV blocks of the draft model.")),
      model_blocks_held_(metrics.Gauge("baton_decode_draft_model_blocks_held",
                                       "KV blocks of the draft model that sequences hold.")),
      past_answers_bytes_(metrics.Gauge("baton_decode_past_answers_bytes",
                                        "Memory of finished answers that later ones are drafted from.")) {
  static_assert(kPositionNames.size() == kPositions);
  for (const Kind kind : drafting::kDrafterKinds) {
    const std::string name(NameOf(kind));
    OfKind& of = Of(kind);
    of.drafts = &metrics.Counter("baton_decode_drafts_total", "Drafts that a step checked, by drafter.",
                                 {{"drafter", name}});
    for (const RequestKind request : kRequestKinds) {
      const auto at = static_cast<size_t>(request);
      const telemetry::Metrics::Labels labels = {{"drafter", name}, {"request", kRequestNames[at]}};
      of.drafted[at] =
          &metrics.Counter("baton_decode_drafted_tokens_total",
                           "Drafted tokens that steps checked, by drafter and kind of request.", labels);
      of.accepted[at] = &metrics.Counter(
          "baton_decode_accepted_tokens_total",
          "Drafted tokens that the model drew itself, by drafter and kind of request.", labels);
    }
    of.refused = &metrics.Counter("baton_decode_draft_rows_refused_total",
                                  "Drafted tokens that were not worth a row of the step, by drafter.",
                                  {{"drafter", name}});
    of.saved = &metrics.Gauge("baton_decode_draft_saved_seconds",
                              "Seconds of steps that drafts have saved, predicted, by drafter.",
                              {{"drafter", name}});
    for (size_t i = 0; i < kPositions; ++i) {
      of.by_position[i] =
          &metrics.Counter("baton_decode_accepted_tokens_by_position_total",
                           "Drafted tokens that the model drew itself, by drafter and place in the draft.",
                           {{"drafter", name}, {"position", kPositionNames[i]}});
    }
  }
}

void DraftProbe::Refused(Kind kind, int64_t tokens) {
  Of(kind).refused->Increment(static_cast<double>(tokens));
}

void DraftProbe::Checked(Kind kind, RequestKind request, int64_t tokens) {
  Of(kind).drafts->Increment();
  Of(kind).drafted[static_cast<size_t>(request)]->Increment(static_cast<double>(tokens));
}

void DraftProbe::Accepted(Kind kind, RequestKind request, size_t position) {
  Of(kind).accepted[static_cast<size_t>(request)]->Increment();
  Of(kind).by_position[ClassOf(position)]->Increment();
}

void DraftProbe::ModelHolds(int64_t held, int64_t total) {
  model_blocks_.Set(static_cast<double>(total));
  model_blocks_held_.Set(static_cast<double>(held));
}

void DraftProbe::Saved(Kind kind, double seconds) { Of(kind).saved->Increment(seconds); }

}  // namespace baton::decode_service
