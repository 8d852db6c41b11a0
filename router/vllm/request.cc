#include "router/vllm/request.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "common/base/status.h"

namespace baton::router::vllm {
namespace {

// That protocol's max_new_tokens when it is absent.
constexpr uint32_t kDefaultTokens = 20;
constexpr uint32_t kMaxToken = std::numeric_limits<int32_t>::max();

absl::Status Wrong(std::string_view field, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", field, why));
}

absl::Status Refuse(bool asked, std::string_view field, std::string_view why = "not served here") {
  return asked ? Wrong(field, why) : absl::OkStatus();
}

absl::Status AddTokens(const google::protobuf::RepeatedField<uint32_t>& from, std::string_view field,
                       google::protobuf::RepeatedField<int32_t>* to) {
  for (const uint32_t id : from) {
    if (id > kMaxToken) return Wrong(field, fmt::format("{} is no token", id));
    to->Add(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadPrompt(const ::vllm::GenerateRequest& from, v1::GenerateRequest* to) {
  switch (from.prompt_case()) {
    case ::vllm::GenerateRequest::kText:
      to->set_text(from.text());
      return absl::OkStatus();
    case ::vllm::GenerateRequest::kTokenIds:
      return AddTokens(from.token_ids().ids(), "token_ids", to->mutable_token_ids()->mutable_ids());
    default:
      return Wrong("prompt", "absent: send text or token_ids");
  }
}

absl::Status ReadSampling(const ::vllm::GenerateRequest& from, bool stream, v1::GenerateRequest* to) {
  v1::SamplingParams& sampling = *to->mutable_sampling();
  if (from.has_temperature()) sampling.set_temperature(from.temperature());
  const ::vllm::RandomSampling& random = from.sampling();
  if (random.num_sequences() > 0) to->mutable_options()->set_n(random.num_sequences());
  BATON_RETURN_IF_ERROR(Refuse(random.num_sequences() > 1 && !stream, "sampling.num_sequences",
                               "one message answers Generate: call GenerateStream"));
  if (random.top_k() > kMaxToken) return Wrong("sampling.top_k", "out of range");
  if (random.top_k() > 0) sampling.set_top_k(static_cast<int32_t>(random.top_k()));
  if (random.top_p() != 0) sampling.set_top_p(random.top_p());
  if (random.min_p() != 0) sampling.set_min_p(random.min_p());
  if (random.has_seed()) sampling.set_seed(static_cast<uint64_t>(random.seed()));
  const ::vllm::DecodingParameters& decoding = from.decoding();
  if (decoding.presence_penalty() != 0) sampling.set_presence_penalty(decoding.presence_penalty());
  if (decoding.frequency_penalty() != 0) sampling.set_frequency_penalty(decoding.frequency_penalty());
  if (decoding.repetition_penalty() != 0) sampling.set_repetition_penalty(decoding.repetition_penalty());
  for (const auto& [id, bias] : decoding.logit_bias()) {
    if (id > kMaxToken) return Wrong("decoding.logit_bias", fmt::format("{} is no token", id));
    (*sampling.mutable_logit_bias())[static_cast<int32_t>(id)] = bias;
  }
  return Refuse(!decoding.allowed_token_ids().empty(), "decoding.allowed_token_ids");
}

absl::Status ReadConstraint(const ::vllm::DecodingParameters& from, v1::GenerateRequest* to) {
  using From = ::vllm::DecodingParameters;
  switch (from.structured_output_case()) {
    case From::kJson:
      to->mutable_constraint()->set_json_schema(from.json());
      break;
    case From::kRegex:
      to->mutable_constraint()->set_regex(from.regex());
      break;
    case From::kChoice:
      *to->mutable_constraint()->mutable_choices()->mutable_values() = from.choice().choices();
      break;
    case From::kGrammar:
      to->mutable_constraint()->set_lark(from.grammar());
      break;
    case From::kJsonObject:
      if (from.json_object()) to->mutable_constraint()->set_json_object(true);
      break;
    case From::kStructuralTag:
      return Wrong("decoding.structural_tag", "not served here; baton.v1 has structural_tags");
    default:
      break;
  }
  return absl::OkStatus();
}

absl::Status ReadStop(const ::vllm::StoppingCriteria& from, v1::GenerateRequest* request) {
  v1::StopConditions* const to = request->mutable_stop();
  to->set_max_tokens(from.max_new_tokens() == 0 ? kDefaultTokens : from.max_new_tokens());
  // Nobody asked for as many as that: a lower bound of the operator's is no error.
  if (from.max_new_tokens() == 0) request->mutable_overflow()->set_mode(v1::Overflow::MODE_CLAMP_OUTPUT);
  BATON_RETURN_IF_ERROR(Refuse(from.min_new_tokens() > 0, "stopping.min_new_tokens",
                               "not served here: an answer may end with its first token"));
  BATON_RETURN_IF_ERROR(Refuse(from.include_stop_strings(), "stopping.include_stop_strings"));
  BATON_RETURN_IF_ERROR(
      AddTokens(from.stop_token_ids(), "stopping.stop_token_ids", to->mutable_stop_token_ids()));
  *to->mutable_stop() = from.stop_strings();
  to->set_ignore_eos(from.ignore_eos());
  return absl::OkStatus();
}

absl::Status ReadOutput(const ::vllm::GenerateRequest& from, Request* to) {
  const ::vllm::ResponseOptions& asked = from.response();
  AnswerShape& shape = to->shape;
  v1::OutputOptions& output = *to->request.mutable_output();
  BATON_RETURN_IF_ERROR(Refuse(asked.prompt_logprobs(), "response.prompt_logprobs"));
  BATON_RETURN_IF_ERROR(Refuse(asked.has_prompt_candidates(), "response.prompt_candidates"));
  if (asked.prompt_token_ids()) {
    BATON_RETURN_IF_ERROR(
        Refuse(!from.has_token_ids(), "response.prompt_token_ids",
               "served here for a prompt of token_ids; Tokenize of baton.v1 tells a text's"));
    shape.prompt.assign(from.token_ids().ids().begin(), from.token_ids().ids().end());
  }
  shape.text = !asked.has_output_text() || asked.output_text();
  shape.token_ids = asked.output_token_ids();
  shape.logprobs = asked.output_logprobs();
  shape.stops.assign(to->request.stop().stop_token_ids().begin(), to->request.stop().stop_token_ids().end());
  if (asked.has_output_candidates()) {
    BATON_RETURN_IF_ERROR(Refuse(asked.output_candidates().select_case() != ::vllm::CandidateTokens::kTopN,
                                 "response.output_candidates", "only top_n is served here"));
    shape.candidates = true;
    output.set_top_logprobs(asked.output_candidates().top_n());
  }
  output.set_token_ids(shape.token_ids);
  output.set_logprobs(shape.logprobs || shape.candidates);
  output.set_special_tokens(asked.has_skip_special_tokens() && !asked.skip_special_tokens());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Request> ReadRequest(const ::vllm::GenerateRequest& from, bool stream) {
  Request read;
  v1::GenerateRequest& request = read.request;
  if (from.request_id().size() > kMaxRequestId)
    return Wrong("request_id", fmt::format("longer than {} bytes", kMaxRequestId));
  read.id = from.request_id();
  request.set_model(from.model());
  BATON_RETURN_IF_ERROR(ReadPrompt(from, &request));
  BATON_RETURN_IF_ERROR(ReadSampling(from, stream, &request));
  BATON_RETURN_IF_ERROR(ReadConstraint(from.decoding(), &request));
  BATON_RETURN_IF_ERROR(ReadStop(from.stopping(), &request));
  BATON_RETURN_IF_ERROR(ReadOutput(from, &read));
  const ::vllm::KVCacheParameters& kv = from.kv();
  BATON_RETURN_IF_ERROR(Refuse(kv.bypass_prefix_cache(), "kv.bypass_prefix_cache"));
  BATON_RETURN_IF_ERROR(Refuse(!kv.cache_salt().empty(), "kv.cache_salt",
                               "not served here: caches of tenants are apart by their keys"));
  BATON_RETURN_IF_ERROR(Refuse(kv.has_kv_transfer_params(), "kv.kv_transfer_params"));
  BATON_RETURN_IF_ERROR(Refuse(kv.has_ec_transfer_params(), "kv.ec_transfer_params"));
  BATON_RETURN_IF_ERROR(Refuse(from.truncate_prompt_tokens() > 0, "truncate_prompt_tokens"));
  BATON_RETURN_IF_ERROR(Refuse(!from.media().empty(), "media"));
  BATON_RETURN_IF_ERROR(Refuse(!from.lora_name().empty(), "lora_name"));
  request.mutable_options()->set_priority(from.priority());
  request.mutable_options()->set_session_id(from.session_id());
  return read;
}

}  // namespace baton::router::vllm
