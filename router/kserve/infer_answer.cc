#include "router/kserve/infer_answer.h"

#include <utility>

#include "router/kserve/tensors.h"

namespace baton::router::kserve {
namespace {

using inference::ModelInferResponse;

constexpr char kFinal[] = "triton_final_response";

const char* NameOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_TOKEN:
    case v1::FINISH_REASON_STOP_STRING:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_CONTEXT_FULL:
      return "length";
    case v1::FINISH_REASON_CONTENT_FILTER:
      return "content_filter";
    default:
      return "";
  }
}

}  // namespace

std::optional<ModelInferResponse> InferAnswer::Add(const v1::GenerateResponse& response) {
  if (response.has_started()) {
    model_ = response.started().model();
    prompt_tokens_ = response.started().prompt_tokens();
  } else if (response.has_finished()) {
    reason_ = response.finished().reason();
  } else if (response.has_delta()) {
    const v1::Delta& delta = response.delta();
    text_ += delta.text();
    tokens_.insert(tokens_.end(), delta.token_ids().begin(), delta.token_ids().end());
    count_ += delta.tokens();
    for (const v1::StepLogprobs& step : delta.logprobs()) logprob_ += step.chosen().logprob();
    if (shape_.stream && (shape_.text ? !text_.empty() : !tokens_.empty())) return Take();
  }
  return std::nullopt;
}

ModelInferResponse InferAnswer::Last() {
  ModelInferResponse last = Take();
  (*last.mutable_parameters())[kFinal].set_bool_param(true);
  return last;
}

ModelInferResponse InferAnswer::Take() {
  ModelInferResponse response;
  response.set_model_name(model_.empty() ? shape_.model : model_);
  response.set_model_version("1");
  response.set_id(shape_.id);
  (*response.mutable_parameters())[kFinal].set_bool_param(false);
  OutputTensors outputs(shape_.raw, response);
  if (shape_.text) {
    outputs.AddText("text_output", (begun_ ? "" : shape_.before) + text_);
  } else {
    outputs.AddTokens("output_ids", tokens_);
  }
  if (shape_.finish_reason) outputs.AddText("finish_reason", NameOf(reason_));
  if (shape_.cumulative_logprob) outputs.AddNumber("cumulative_logprob", static_cast<float>(logprob_));
  if (shape_.input_tokens) outputs.AddCount("num_input_tokens", prompt_tokens_);
  if (shape_.output_tokens) outputs.AddCount("num_output_tokens", count_);
  if (shape_.sequence_length) outputs.AddTokens("sequence_length", {static_cast<int32_t>(count_)});
  if (shape_.cum_log_probs) outputs.AddNumber("cum_log_probs", static_cast<float>(logprob_));
  begun_ = true;
  text_.clear();
  tokens_.clear();
  count_ = 0;
  return response;
}

inference::ModelStreamInferResponse FailureMessage(const std::string& id, const absl::Status& status) {
  inference::ModelStreamInferResponse message;
  message.set_error_message(std::string(status.message()));
  message.mutable_infer_response()->set_id(id);
  (*message.mutable_infer_response()->mutable_parameters())[kFinal].set_bool_param(true);
  return message;
}

}  // namespace baton::router::kserve
