// The commands of `baton` that measure, simulate and plan. They are in a binary of their own, `baton-lab`,
// which stands beside this one; a user calls them by `baton` all the same.
#pragma once

#include <string>

namespace baton::cli {

struct LabCommand {
  const char* name;
  const char* description;
};

inline constexpr LabCommand kBench = {"bench",
                                      "Load a server and measure TTFT, TPOT, throughput and goodput"};
inline constexpr LabCommand kEval = {
    "eval", "Measure what precisions of weights and KV, or reuse of documents, cost a model in quality"};
inline constexpr LabCommand kPlan = {"plan", "How many prefill and decode workers a load needs, and why"};
inline constexpr LabCommand kSimulate = {"simulate",
                                         "Plan capacity and compare placement policies on a trace"};
inline constexpr LabCommand kLabCommands[] = {kBench, kEval, kPlan, kSimulate};

// Runs `baton-lab` of the folder in place of this process, with the same arguments, if the first of them
// names one of its commands. Returns 0 if it does not, or the exit code of a failure.
int HandOver(const std::string& binary_folder, int argc, char** argv);

}  // namespace baton::cli
