// Answer: a stream of Chat or Generate folded into one value, from which the answers in one piece are made.
// Every mapping folds the same stream, so an answer in one piece says what the stream said. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"

namespace baton::gateway {

class Answer {
 public:
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
    std::optional<v1::Finished> finished;
  };

  void Add(const v1::GenerateResponse& event);
  // A stream that ended well had all of it. INTERNAL otherwise.
  absl::Status CheckWhole() const;

  const v1::Started& started() const { return started_; }
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  Choice& At(uint32_t choice);

  v1::Started started_;
  std::vector<Choice> choices_;
};

// What a request used, as both vendors want it. `told`: of the call's trailer; absent: the stream's end has
// not been seen, and the counts are those of the choices that ended.
v1::Usage UsageOf(const std::optional<v1::RequestUsage>& told, const std::vector<Answer::Choice>& choices);

}  // namespace baton::gateway
