#include "tests/fuzz/kserve_bytes.h"

#include <string>
#include <vector>

#include "router/kserve/infer_answer.h"
#include "router/kserve/infer_request.h"
#include "router/vllm/answer.h"
#include "router/vllm/request.h"

namespace baton::router {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

// Refusals are in words that a client can be told.
absl::Status Judge(const absl::Status& status) {
  if (status.ok() || absl::IsInvalidArgument(status) || absl::IsNotFound(status)) {
    return status.ok() || !status.message().empty() ? absl::OkStatus() : Unsound("an error without words");
  }
  return Unsound(status.ToString());
}

// A short answer with a token, text and an end.
std::vector<v1::GenerateResponse> AnAnswer() {
  std::vector<v1::GenerateResponse> answer(3);
  answer[0].mutable_started()->set_prompt_tokens(3);
  answer[1].mutable_delta()->set_text("a");
  answer[1].mutable_delta()->add_token_ids(5);
  answer[1].mutable_delta()->set_tokens(1);
  answer[1].mutable_delta()->add_logprobs()->mutable_chosen()->set_logprob(-1);
  answer[2].mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  return answer;
}

absl::Status ReadKserve(std::span<const uint8_t> bytes, bool streams) {
  inference::ModelInferRequest infer;
  if (!infer.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  const auto read = kserve::ReadInferRequest(infer, streams);
  if (!read.ok()) return Judge(read.status());
  if (read->request.ByteSizeLong() > 16 * bytes.size() + 1024) return Unsound("a request out of nothing");
  if (read->request.prompt_case() == v1::GenerateRequest::PROMPT_NOT_SET) return Unsound("no prompt");
  kserve::InferAnswer answer(read->reply);
  for (const v1::GenerateResponse& event : AnAnswer()) answer.Add(event);
  const inference::ModelInferResponse last = answer.Last();
  const bool raw = infer.raw_input_contents_size() > 0;
  if (last.raw_output_contents_size() != (raw ? last.outputs_size() : 0)) return Unsound("mixed contents");
  return absl::OkStatus();
}

absl::Status ReadVllm(std::span<const uint8_t> bytes, bool stream) {
  ::vllm::GenerateRequest given;
  if (!given.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  const auto read = vllm::ReadRequest(given, stream);
  if (!read.ok()) return Judge(read.status());
  if (read->request.ByteSizeLong() > 16 * bytes.size() + 1024) return Unsound("a request out of nothing");
  vllm::Answer whole(read->shape), pieces(read->shape);
  bool told = false;
  for (const v1::GenerateResponse& event : AnAnswer()) {
    whole.Add(event);
    const auto piece = pieces.Piece(event);
    if (!piece.has_value()) continue;
    if (piece->has_prompt_info() == told) return Unsound("the prompt is told once, and first");
    told = true;
  }
  if (whole.whole().outputs().finish_info().num_output_tokens() != 1) return Unsound("miscounted");
  return absl::OkStatus();
}

}  // namespace

absl::Status FuzzForeignRequest(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  const auto rest = bytes.subspan(1);
  return bytes[0] % 4 < 2 ? ReadKserve(rest, bytes[0] % 2 == 1) : ReadVllm(rest, bytes[0] % 2 == 1);
}

}  // namespace baton::router
