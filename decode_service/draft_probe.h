// DraftProbe: what a decode worker measures of drafted tokens, by drafter and by kind of request. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/telemetry/metrics.h"
#include "decode_service/drafting/drafter.h"

namespace baton::decode_service {

// The kinds differ in how easy an answer is to guess. A request is of the first one that fits.
enum class RequestKind {
  kConstrained,  // a schema, a grammar, or tools whose calls are enforced
  kTools,        // tools that may be called
  kThinking,     // the prompt ends inside thinking
  kText,
};
inline constexpr std::array kRequestKinds = {RequestKind::kConstrained, RequestKind::kTools,
                                             RequestKind::kThinking, RequestKind::kText};

class DraftProbe {
 public:
  explicit DraftProbe(telemetry::Metrics& metrics);

  using Kind = drafting::DrafterKind;
  // So many tokens were there to be checked, and the controller granted fewer rows.
  void Refused(Kind kind, int64_t tokens);
  // A step has checked a draft of so many tokens.
  void Checked(Kind kind, RequestKind request, int64_t tokens);
  // The model drew the drafted token at `position`, from 0.
  void Accepted(Kind kind, RequestKind request, size_t position);
  // A step's drafts have saved `seconds`, by its prediction; negative: cost.
  void Saved(Kind kind, double seconds);
  // A model has drafted, or computed what it lacked of a prompt.
  void ModelComputed(double seconds) { model_seconds_.Increment(seconds); }
  // Past answers take so many bytes.
  void Remembers(size_t bytes) { past_answers_bytes_.Set(static_cast<double>(bytes)); }
  // Blocks of the draft model's KV pool.
  void ModelHolds(int64_t held, int64_t total);

 private:
  // Positions 1, 2, 3, 4, 5 to 8, 9 to 16, and later.
  static constexpr size_t kPositions = 7;
  struct OfKind {
    using ByRequest = std::array<prometheus::Counter*, kRequestKinds.size()>;
    prometheus::Counter* drafts;  // never null, nor the others
    ByRequest drafted, accepted;
    prometheus::Counter* refused;
    prometheus::Gauge* saved;
    std::array<prometheus::Counter*, kPositions> by_position;
  };
  OfKind& Of(Kind kind) { return kinds_[static_cast<size_t>(kind)]; }

  std::array<OfKind, drafting::kDrafterKinds.size()> kinds_;
  prometheus::Counter& model_seconds_;
  prometheus::Gauge& model_blocks_;
  prometheus::Gauge& model_blocks_held_;
  prometheus::Gauge& past_answers_bytes_;
};

}  // namespace baton::decode_service
