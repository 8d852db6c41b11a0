// Answer: a stream of Chat or Generate folded into one value, from which the answers in one piece are made.
// Every mapping folds the same stream, so an answer in one piece says what the stream said. The streams of
// several prompts are folded into one, with choices whose numbers go on. One thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"

namespace baton::gateway {

// Choices of a prompt, as the router bounds them.
inline constexpr uint32_t kMaxChoices = 8;

class Answer {
 public:
  // What is said of choices beyond `most` is said of the last.
  explicit Answer(uint32_t most = kMaxChoices) : most_(most) {}

  struct Part {
    v1::PartStart start;
    // The text, the thinking, or a call's arguments.
    std::string text;
    bool complete = false;
  };
  struct Choice {
    std::string text;  // of the answer itself
    std::vector<Part> parts;
    std::vector<v1::StepLogprobs> logprobs;
    std::vector<v1::StepLogprobs> prompt_logprobs;
    std::vector<v1::SamplingTrace> sampling;
    std::optional<v1::Finished> finished;
  };

  void Add(const v1::GenerateResponse& event);
  // A stream that ended well had all of it, and at least so many choices. INTERNAL otherwise.
  absl::Status CheckWhole(size_t least = 1) const;

  const v1::Started& started() const { return started_; }
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  Choice& At(uint32_t choice);

  uint32_t most_;
  v1::Started started_;
  std::vector<Choice> choices_;
};

// What a request used, as both vendors want it. `told`: of the call's trailer; absent: the stream's end has
// not been seen, and the counts are those of the choices that ended.
v1::Usage UsageOf(const std::optional<v1::RequestUsage>& told, std::span<const Answer::Choice> choices);
// Of another prompt.
void AddUsage(const v1::Usage& one, v1::Usage* sum);

}  // namespace baton::gateway
