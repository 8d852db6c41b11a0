// Answer: what the events of one stream add up to, choice by choice, and its JSON. It checks what the wire
// promises (Started first, one Finished per choice). One thread at a time; knows nothing of gRPC.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "router/api/answer_fold.h"

namespace baton::cli {

struct Choice {
  std::string text;
  router::AnswerFold::Parts parts;  // none where the server looks for none
  std::vector<int32_t> token_ids;
  std::vector<v1::StepLogprobs> logprobs;
  std::vector<uint32_t> logits_digests;
  std::vector<v1::SamplingTrace> sampling;
  bool finished = false;
  v1::Finished end;
};

class Answer {
 public:
  void Take(const v1::GenerateResponse& event);

  // INTERNAL if the stream, which ended well, broke the wire's promises: nothing is cut short in silence.
  absl::Status CheckComplete() const;

  const v1::Started& started() const { return started_; }
  const std::vector<Choice>& choices() const { return choices_; }

  // One CRC32C over the digests of all choices and steps, in order: equal for two runs that computed the same
  // bits.
  uint32_t LogitsDigest() const;

  // The whole answer; seconds, tokens, bytes.
  nlohmann::ordered_json ToJson() const;

 private:
  Choice& At(uint32_t choice);

  bool has_started_ = false;
  std::string broken_;
  v1::Started started_;
  std::vector<Choice> choices_;
};

}  // namespace baton::cli
