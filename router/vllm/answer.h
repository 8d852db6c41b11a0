// Answer: the stream of one answer as vLLM's messages: one for each piece, or one for all of it. One answer,
// one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "baton/v1/inference.pb.h"
#include "router/vllm/request.h"
#include "vllm/inference.pb.h"

namespace baton::router::vllm {

class Answer {
 public:
  explicit Answer(AnswerShape shape) : shape_(std::move(shape)) {}

  // The piece of a stream for the next message; nothing: the client gets none.
  std::optional<::vllm::GenerateResponse> Piece(const v1::GenerateResponse& response);
  // The last message of a stream that the client has ended from elsewhere.
  ::vllm::GenerateResponse Aborted();

  // The same, gathered into one message: of one sequence.
  void Add(const v1::GenerateResponse& response);
  const ::vllm::GenerateResponse& whole() const { return whole_; }

 private:
  void AddDelta(const v1::Delta& delta, ::vllm::SequenceOutput* output);
  void AddEnd(const v1::Finished& finished, ::vllm::SequenceOutput* output);
  // Before the first message has left, it has these.
  void AddPromptInfo(::vllm::GenerateResponse* message);

  const AnswerShape shape_;
  uint32_t prompt_tokens_ = 0;
  bool told_prompt_ = false;
  std::map<uint32_t, uint32_t> tokens_;  // by sequence
  ::vllm::GenerateResponse whole_;
};

}  // namespace baton::router::vllm
