// SpeculationRig: a decode scheduler on a small engine, beside a prefill worker if asked, that answers
// several requests at once: alone in the world, or while pools are short, clients stop reading, answers move
// to another sequence and links break. For tests of what drafts change, which is nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/telemetry/metrics.h"
#include "decode_service/grammar_threads.h"
#include "decode_service/request.h"
#include "decode_service/scheduler.h"
#include "transfer/host_link.h"

namespace baton::decode_service {

// An answer as a client has seen it.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> digests;
  std::vector<std::string> logprobs;  // serialized
  std::vector<std::string> traces;    // serialized
  std::vector<std::string> prompt;    // log probabilities of its tokens, serialized
  std::string text;
  std::vector<std::string> parts;  // neighbouring pieces of text of a part in one
  std::string finish;              // serialized, without what says how fast it was
  uint32_t drafted = 0, accepted = 0;
  double step_seconds = 0;  // as a router is told
  bool over = false;
  int deltas = 0;
  std::string failure;
};

// The model that drafts.
enum class DraftModel {
  kNone,
  kRight,  // the same weights
  kWrong,  // other random weights
  kSelf,   // the same weights in 4 bits, in the sequences' own blocks
};

struct RigOptions {
  // Empty: a model of a few kilobytes with the shipped vocabulary.
  std::string model_folder = {};
  std::string backend = "reference";
  int tp = 1;
  int64_t blocks = 24;
  std::optional<tensor::DType> key_dtype = {}, value_dtype = {};
  model::WeightPrecision weights = model::WeightPrecision::kStored;
  Speculation speculation = {};
  DraftModel drafts = DraftModel::kNone;
  // A prefill worker computes prompts of more than 4 tokens.
  bool handoffs = false;
  double slo_tpot = forecast::kDefaultSloTpot;
  // So much time passes with each look at the clock.
  absl::Duration tick = absl::ZeroDuration();
};

class TickingClock final : public Clock {
 public:
  explicit TickingClock(absl::Duration tick) : tick_(tick) {}
  absl::Time Now() const override {
    clock_.Advance(tick_);
    return clock_.Now();
  }
  void Advance(absl::Duration by) { clock_.Advance(by); }

 private:
  const absl::Duration tick_;
  mutable FakeClock clock_;
};

class SpeculationRig {
 public:
  explicit SpeculationRig(const RigOptions& options);
  ~SpeculationRig();

  static const std::shared_ptr<const text::Tokenizer>& Tokenizer();

  // Answers to all requests. disturb: 0, or a seed of what else happens.
  std::vector<Answer> Run(const std::vector<fleet::v1::DecodeRequest>& requests, uint64_t disturb);
  // All requests begin, get some tokens and are cancelled.
  void Abandon(const std::vector<fleet::v1::DecodeRequest>& requests);
  // Time passes, and then the worker makes a step without work.
  void Idle(absl::Duration time);
  std::string Metrics() const { return metrics_.Text(); }
  engine::Engine& engine() { return *engine_; }
  size_t handoffs() const;

 private:
  struct PrefillWorker;
  struct Client {
    Answer answer;
    SequenceId id{0};
    bool inside = false, congested = false, moves = false;
    uint32_t drafted = 0, accepted = 0;  // by workers that it has left
    uint32_t last_drafted = 0, last_accepted = 0;
  };

  bool Submit(fleet::v1::DecodeRequest request, Client& client);
  void Leave(Client& client);
  void CheckPools();
  void ExpectNothingHeld();

  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Engine> drafts_;  // null: no draft model
  int64_t draft_blocks_ = 0;                // the most that were held
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  std::shared_ptr<const output::MarkerTables> markers_ = std::make_shared<output::MarkerTables>(*Tokenizer());
  std::map<std::string, text::GrammarMatcher> compiled_;
  transfer::HostLinkReceiver link_;
  std::unique_ptr<PrefillWorker> prefill_;
  std::minstd_rand random_;
  uint64_t disturb_ = 0;
  TickingClock clock_;
  telemetry::Metrics metrics_;
  Probe probe_{metrics_, "host"};
  std::unique_ptr<Scheduler> scheduler_;
  GrammarThreads masks_{{}};
  GrammarThreads late_masks_{{.swift = 0, .slow = 0}};  // computed when the run says so
  uint64_t next_id_ = 1;
};

// Adds a failure if the two differ in anything but how much was drafted.
void ExpectSameAnswer(const fleet::v1::DecodeRequest& request, const Answer& plain, const Answer& drafted);

}  // namespace baton::decode_service
