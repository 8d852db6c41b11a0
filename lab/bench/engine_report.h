// The report of `baton bench engine`: as a table and as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/bench/engine_bench.h"
#include "lab/bench/report.h"

namespace baton::lab::bench {

// The middle one, or the mean of the two in the middle; 0 of none.
double MedianOf(std::vector<double> values);

// `provenance`: machine, commit, time and model are shown. `weights`: as in --weights.
std::string RenderEngineReport(const EngineBenchResult& result, const std::string& weights,
                               const Provenance& provenance);

// Seconds, bytes, operations per second; each run with all of its repetitions.
nlohmann::ordered_json EngineReportToJson(const EngineBenchResult& result, const std::string& weights,
                                          const Provenance& provenance);

}  // namespace baton::lab::bench
