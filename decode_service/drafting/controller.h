// The controller: how many tokens are drafted, and how many of them the next step checks. A step is worth
// what it gives: tokens per second. So many rows are granted as make that greatest, by what the worker has
// learnt of its steps:
//
//     (tokens of the step without drafts + survival of the rows) / (seconds of the step with them)
//
// There is no threshold: where steps are already as long as their rows, nothing is granted; and where
// kernels take a step up at some number of rows, all rows up to the next one are looked at together. Drafts
// of a model cost besides what drafting them takes. An answer without drafts waits as long for its one token
// as others for their several: so a step with drafts keeps to the target of TPOT. Numbers only.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "protocol/forecast/step_forecast.h"

namespace baton::decode_service::drafting {

// Limits of a step with drafts.
struct Bounds {
  int64_t rows = 0;  // that are drafted, at most
  // The seconds that it may take, drafting included.
  double seconds = std::numeric_limits<double>::infinity();
  // So many, or what the step takes without drafts, for each token that it is expected to give to the answer
  // to which it gives the fewest.
  bool by_token = true;
  double spent = 0;  // seconds that drafting has taken already
};

struct Offer {
  std::span<const double> survival;  // as in Draft
  int64_t context = 0;               // tokens before the drafted ones
};

// The number of tokens granted to each offer. load: of the step without them, which gives a token for each
// running sequence.
std::vector<int64_t> GrantRows(std::span<const Offer> offers, const forecast::StepLoad& load,
                               const forecast::StepForecast& forecast, const Bounds& bounds);

// Tokens that a model could draft for a sequence.
struct ModelOffer {
  std::span<const double> survival;  // of each token that it could draft, as it is expected to be
  int64_t context = 0;               // tokens before them
  int64_t have = 0;                  // of them, the first so many are drafted already
  int64_t behind = 0;                // rows that the model computes besides, before the first
};

// The number of tokens to draft for each offer, those it has included. Sequences are drafted for together, a
// token of each in a draft step, which takes what `drafts` says.
std::vector<int64_t> GrantDrafts(std::span<const ModelOffer> offers, const forecast::StepLoad& load,
                                 const forecast::StepForecast& forecast, const forecast::StepForecast& drafts,
                                 const Bounds& bounds);

// How many tokens per second more the worker gives, if a sequence that is drafted for alone is, than with no
// drafts at all, by one token of it: what having its draft model ready is worth.
struct ModelGain {
  double tokens = 0;   // more, for each token of the sequence
  double seconds = 0;  // a token of the worker takes, without drafts
};
ModelGain GainOf(const ModelOffer& offer, const forecast::StepLoad& load,
                 const forecast::StepForecast& forecast, const forecast::StepForecast& drafts, Bounds bounds);

}  // namespace baton::decode_service::drafting
