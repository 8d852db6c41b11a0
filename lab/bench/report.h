// Report: what a load test found, for people and for programs. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/show/terminal.h"
#include "lab/bench/machine.h"
#include "lab/bench/recorder.h"

namespace baton::lab::bench {

// Contents of a report with which others can repeat the run.
struct Provenance {
  Machine machine;
  std::string commit;
  // RFC 3339, UTC.
  std::string time;
  std::string server;
  std::string model;
  int64_t context_tokens = 0;
  uint64_t seed = 0;
  // Digest of what was asked for.
  uint32_t asked = 0;
  bool interrupted = false;
};

// Several lines.
std::string RenderReport(const Summary& summary, const Slo& slo, const cli::Terminal& terminal);

// `settings`: every flag with its value. Seconds, tokens, bytes.
nlohmann::ordered_json ReportToJson(const Summary& summary, const Slo& slo, const Provenance& provenance,
                                    const nlohmann::ordered_json& settings);

// One answered request: when it was meant to be sent, and what its TTFT was made of by the server's word;
// `rest` is what the client saw besides. `baton simulate --record` writes the same fields.
nlohmann::ordered_json RequestToJson(const RequestRecord& record);

}  // namespace baton::lab::bench
