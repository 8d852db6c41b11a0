// A request of KServe's protocol as one of ours: which tensor is which parameter, in the names of Triton's
// vLLM backend and of TensorRT-LLM's ensemble, and what the answer shall hold. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "kserve/v2.pb.h"

namespace baton::router::kserve {

// Content of an answer's messages.
struct ReplyShape {
  std::string id;
  std::string model;
  bool raw = false;     // tensors as raw bytes
  bool stream = false;  // a message for each piece
  std::string before;   // text that the answer begins with: the prompt, if it is to be repeated
  bool text = true;     // else token ids
  bool finish_reason = false;
  bool cumulative_logprob = false;
  bool input_tokens = false;
  bool output_tokens = false;
  // TensorRT-LLM's names: the tokens of this message, and cumulative_logprob.
  bool sequence_length = false;
  bool cum_log_probs = false;
};

struct InferRequest {
  v1::GenerateRequest request;
  ReplyShape reply;
};

// INVALID_ARGUMENT names the tensor, the parameter or the output that is wrong or not served. `streams`: the
// call can carry more than one message.
absl::StatusOr<InferRequest> ReadInferRequest(const inference::ModelInferRequest& request, bool streams);

// NOT_FOUND: the protocol's versions of a model are one, "1".
absl::Status CheckVersion(std::string_view version);

// A tensor in any model's ModelMetadata.
struct TensorInfo {
  const char* name;
  const char* datatype;
  bool list;  // of any number of values; else of one
};
std::span<const TensorInfo> Inputs();
std::span<const TensorInfo> Outputs();

}  // namespace baton::router::kserve
