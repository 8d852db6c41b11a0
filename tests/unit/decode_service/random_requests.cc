#include "tests/unit/decode_service/random_requests.h"

#include <array>
#include <string>

#include "tests/unit/decode_service/speculation_rig.h"

namespace baton::decode_service {
namespace {

constexpr int32_t kThinkCloser = 2045, kCallOpener = 2046;

}  // namespace

fleet::v1::DecodeRequest RandomRequests::Next() {
  fleet::v1::DecodeRequest request;
  request.set_request_id(std::to_string(number_));
  request.set_salt(std::to_string(number_++));
  const int32_t first = options_.first_token;
  const int size = 1 + Below(60);
  // Few tokens, so that they repeat.
  const int kinds = 2 + Below(30);
  for (int i = 0; i < size; ++i) request.add_token_ids(first + Below(static_cast<size_t>(kinds)));
  v1::StopConditions& stop = *request.mutable_stop();
  const int most = OneIn(4) ? options_.most_tokens : options_.most_tokens / 3;
  stop.set_max_tokens(static_cast<uint32_t>(1 + Below(static_cast<size_t>(most))));
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_seed(random_());
  sampling.set_temperature(OneIn(2) ? 0.0f : OneIn(2) ? 1.0f : 0.3f);
  if (OneIn(4)) sampling.set_top_k(1 + Below(20));
  if (OneIn(4)) sampling.set_top_p(0.5f);
  if (OneIn(4)) sampling.set_min_p(0.02f);
  if (OneIn(4)) {
    sampling.set_repetition_penalty(1.25f);
    sampling.set_presence_penalty(0.5f);
    sampling.set_frequency_penalty(OneIn(2) ? 0.75f : 0);
  }
  const auto any = [&] { return first + Below(static_cast<size_t>(kinds)); };
  if (OneIn(5)) (*sampling.mutable_logit_bias())[2] = 4;  // the end
  for (int i = 0; i < 3 && OneIn(2); ++i) (*sampling.mutable_logit_bias())[any()] = 6;
  if (OneIn(3)) stop.set_ignore_eos(true);
  if (OneIn(4)) stop.add_stop(std::string(SpeculationRig::Tokenizer()->TokenBytes(TokenId(any()))));
  if (OneIn(4)) stop.add_stop_token_ids(any());
  v1::OutputOptions& output = *request.mutable_output();
  output.set_token_ids(true);
  output.set_logits_digest(OneIn(4));
  output.set_even_frames(OneIn(4));
  if (OneIn(4)) {
    output.set_logprobs(true);
    output.set_top_logprobs(static_cast<uint32_t>(Below(3)));
    output.set_explain(output.top_logprobs() == 1);
  }
  output.set_prompt_logprobs(OneIn(8));
  if (options_.formats && OneIn(4)) AddFormat(request);
  if (options_.formats && OneIn(6)) AddGrammar(request);
  if (options_.context > 0 && number_ % 6 == 0) FillContext(request);
  return request;
}

void RandomRequests::FillContext(fleet::v1::DecodeRequest& request) {
  const int tokens = 1 + Below(40);
  while (request.token_ids_size() < options_.context - tokens) {
    request.add_token_ids(request.token_ids(Below(static_cast<size_t>(request.token_ids_size()))));
  }
  v1::StopConditions& stop = *request.mutable_stop();
  stop.Clear();
  stop.set_ignore_eos(true);
  stop.set_max_tokens(static_cast<uint32_t>(tokens));
  request.clear_grammar();
  request.clear_answer_format();
}

void RandomRequests::AddFormat(fleet::v1::DecodeRequest& request) {
  v1::SamplingParams& sampling = *request.mutable_sampling();
  fleet::v1::AnswerFormat& format = *request.mutable_answer_format();
  format.set_name("hermes");
  format.add_tools("get");
  format.set_one_call(OneIn(2));
  if (OneIn(2)) {
    format.set_thinking_begun(true);
    (*sampling.mutable_logit_bias())[kThinkCloser] = 3;
    if (OneIn(2)) format.set_thinking_budget(static_cast<uint32_t>(Below(8)));
  }
  if (OneIn(2)) (*sampling.mutable_logit_bias())[kCallOpener] = 3;
}

void RandomRequests::AddGrammar(fleet::v1::DecodeRequest& request) {
  v1::StopConditions& stop = *request.mutable_stop();
  stop.set_ignore_eos(false);
  constexpr std::array kGrammars = {
      R"(start: /[a-z]{1,12}( [a-z]{1,5}){0,6}/)",
      R"(start: "{\"name\": \"" /[a-z]{1,6}/ "\", \"kind\": \"something that is long\", \"n\": " /[0-9]{1,3}/ "}")",
      R"(start: <[2046]> "\n{\"name\": \"get\", \"arguments\": {\"a\": " /[0-9]{1,4}/ "}}\n" <[2047]>)"};
  request.mutable_grammar()->set_lark(kGrammars[static_cast<size_t>(Below(kGrammars.size()))]);
  stop.set_max_tokens(static_cast<uint32_t>(20 + Below(static_cast<size_t>(options_.most_tokens))));
}

}  // namespace baton::decode_service
