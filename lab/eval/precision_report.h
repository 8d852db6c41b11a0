// A PrecisionEval as people and as programs read it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/bench/report.h"
#include "lab/eval/precision_eval.h"

namespace baton::lab {

struct PrecisionReport {
  const PrecisionEval& eval;
  const bench::Provenance& provenance;  // names the model
  std::string reference;                // "itself", or a folder's name
  std::string text;                     // the file's name
  int threads = 0;
  double max_kl = 0;
};

std::string RenderPrecisions(const PrecisionReport& report);
nlohmann::ordered_json PrecisionsToJson(const PrecisionReport& report);

}  // namespace baton::lab
