// ReuseEval: what a model loses by chunk reuse (docs/chunk-reuse.md), measured: each question about documents
// is answered twice by an engine in this process, with the documents reused and with full prefill. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "engine/engine.h"
#include "worker/chunk_gate.h"

namespace baton::lab {

// A conversation with reusable parts, and words that a right answer has.
struct ReuseQuestion {
  v1::Conversation conversation;
  std::string expected;
};

// Reads a file with a JSON object in each line: "messages", each with "role" and "content" or "parts"
// ("text", "reusable"), and "expected". INVALID_ARGUMENT names the file and the line.
absl::StatusOr<std::vector<ReuseQuestion>> ReadReuseQuestions(const std::string& path);

// True if `answer` has `expected` as words of their own, in any case.
bool Says(std::string_view answer, std::string_view expected);

struct ReuseEvalOptions {
  engine::EngineOptions engine;
  // Tokens of an answer at most.
  int64_t max_tokens = 32;
  // Questions to ask, spread over the file; 0: all.
  int64_t most_questions = 0;
  // Called after each question.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

struct ReuseEvalResult {
  worker::ChunkGate gate;  // but for its limits
  int64_t prompt_tokens = 0, approximate_tokens = 0;
};

// INVALID_ARGUMENT: a question without a reusable span, or one that does not fit.
absl::StatusOr<ReuseEvalResult> EvaluateReuse(const std::vector<ReuseQuestion>& questions,
                                              const ReuseEvalOptions& options);

}  // namespace baton::lab
