// InferAnswer: the stream of one answer as KServe's messages: one for each piece, or one for all of it. One
// answer, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "kserve/v2.pb.h"
#include "router/kserve/infer_request.h"

namespace baton::router::kserve {

class InferAnswer {
 public:
  explicit InferAnswer(ReplyShape shape) : shape_(std::move(shape)) {}

  // The next message of the stream: what the client gets for it at once, which may be nothing.
  std::optional<inference::ModelInferResponse> Add(const v1::GenerateResponse& response);
  // After the last message: what the client gets then.
  inference::ModelInferResponse Last();

 private:
  // Takes the gathered output as a message.
  inference::ModelInferResponse Take();

  const ReplyShape shape_;
  std::string model_;
  uint32_t prompt_tokens_ = 0;
  v1::FinishReason reason_ = v1::FINISH_REASON_UNSPECIFIED;  // until the answer has ended
  // Since the last message.
  std::string text_;
  std::vector<int32_t> tokens_;
  uint32_t count_ = 0;
  double logprob_ = 0;  // of all tokens so far
  bool begun_ = false;
};

// `status` as a message of a stream that goes on.
inference::ModelStreamInferResponse FailureMessage(const std::string& id, const absl::Status& status);

}  // namespace baton::router::kserve
