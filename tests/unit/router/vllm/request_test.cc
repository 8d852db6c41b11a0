#include "router/vllm/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace baton::router::vllm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Given = ::vllm::GenerateRequest;

Given Prompt() {
  Given given;
  given.set_request_id("r");
  given.set_model("m");
  given.set_text("Once");
  return given;
}

TEST(VllmRequestTest, AllThatIsServedFindsItsPlace) {
  Given given = Prompt();
  given.set_temperature(0);
  given.set_priority(-3);
  given.set_session_id("s");
  auto& sampling = *given.mutable_sampling();
  sampling.set_num_sequences(2);
  sampling.set_top_k(4);
  sampling.set_top_p(0.5f);
  sampling.set_min_p(0.25f);
  sampling.set_seed(-7);
  auto& decoding = *given.mutable_decoding();
  decoding.set_presence_penalty(0.5f);
  decoding.set_frequency_penalty(0.25f);
  decoding.set_repetition_penalty(1.5f);
  (*decoding.mutable_logit_bias())[3] = -1;
  decoding.set_regex("a+");
  auto& stopping = *given.mutable_stopping();
  stopping.set_max_new_tokens(9);
  stopping.add_stop_token_ids(8);
  stopping.add_stop_strings("x");
  stopping.set_ignore_eos(true);
  auto& response = *given.mutable_response();
  response.set_output_token_ids(true);
  response.set_output_logprobs(true);
  response.mutable_output_candidates()->set_top_n(3);
  response.set_skip_special_tokens(false);
  const auto read = ReadRequest(given, /*stream=*/true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->id, "r");
  const v1::GenerateRequest& made = read->request;
  EXPECT_EQ(made.model(), "m");
  EXPECT_EQ(made.text(), "Once");
  EXPECT_TRUE(made.sampling().has_temperature());
  EXPECT_EQ(made.sampling().top_k(), 4);
  EXPECT_EQ(made.sampling().top_p(), 0.5f);
  EXPECT_EQ(made.sampling().min_p(), 0.25f);
  EXPECT_EQ(made.sampling().seed(), static_cast<uint64_t>(-7));
  EXPECT_EQ(made.sampling().presence_penalty(), 0.5f);
  EXPECT_EQ(made.sampling().frequency_penalty(), 0.25f);
  EXPECT_EQ(made.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(made.sampling().logit_bias().at(3), -1);
  EXPECT_EQ(made.constraint().regex(), "a+");
  EXPECT_EQ(made.stop().max_tokens(), 9u);
  EXPECT_THAT(made.stop().stop_token_ids(), ElementsAre(8));
  EXPECT_THAT(made.stop().stop(), ElementsAre("x"));
  EXPECT_TRUE(made.stop().ignore_eos());
  EXPECT_FALSE(made.has_overflow()) << "so many are asked for";
  EXPECT_EQ(made.options().n(), 2u);
  EXPECT_EQ(made.options().priority(), -3);
  EXPECT_EQ(made.options().session_id(), "s");
  EXPECT_TRUE(made.output().token_ids() && made.output().logprobs() && made.output().special_tokens());
  EXPECT_EQ(made.output().top_logprobs(), 3u);
  EXPECT_TRUE(read->shape.text && read->shape.token_ids && read->shape.logprobs && read->shape.candidates);
}

TEST(VllmRequestTest, WhatIsZeroIsTheDefault) {
  const auto read = ReadRequest(Prompt(), false);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request.sampling().ByteSizeLong(), 0u) << read->request.sampling().ShortDebugString();
  EXPECT_FALSE(read->request.has_constraint());
  EXPECT_EQ(read->request.stop().max_tokens(), 20u) << "as in that protocol";
  EXPECT_EQ(read->request.overflow().mode(), v1::Overflow::MODE_CLAMP_OUTPUT)
      << "the operator may allow fewer";
  EXPECT_FALSE(read->request.options().has_n());
  EXPECT_TRUE(read->shape.text);
  EXPECT_FALSE(read->request.output().special_tokens());
}

TEST(VllmRequestTest, TokensOfThePromptComeBackWhereTheyAreKnown) {
  Given given = Prompt();
  given.mutable_token_ids()->add_ids(4);
  given.mutable_token_ids()->add_ids(5);
  given.mutable_response()->set_prompt_token_ids(true);
  given.mutable_response()->set_output_text(false);
  const auto read = ReadRequest(given, false);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->request.token_ids().ids(), ElementsAre(4, 5));
  EXPECT_THAT(read->shape.prompt, ElementsAre(4, 5));
  EXPECT_FALSE(read->shape.text);
}

TEST(VllmRequestTest, EveryConstraint) {
  const std::pair<std::function<void(::vllm::DecodingParameters&)>, v1::Constraint::KindCase> kinds[] = {
      {[](auto& decoding) { decoding.set_json("{}"); }, v1::Constraint::kJsonSchema},
      {[](auto& decoding) { decoding.set_regex("a"); }, v1::Constraint::kRegex},
      {[](auto& decoding) { decoding.mutable_choice()->add_choices("a"); }, v1::Constraint::kChoices},
      {[](auto& decoding) { decoding.set_grammar("start: \"a\""); }, v1::Constraint::kLark},
      {[](auto& decoding) { decoding.set_json_object(true); }, v1::Constraint::kJsonObject},
      {[](auto& decoding) { decoding.set_json_object(false); }, v1::Constraint::KIND_NOT_SET}};
  for (const auto& [set, kind] : kinds) {
    Given given = Prompt();
    set(*given.mutable_decoding());
    const auto read = ReadRequest(given, false);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->request.constraint().kind_case(), kind);
  }
}

TEST(VllmRequestTest, WhatHasNoCounterpartIsRefusedByName) {
  const std::pair<const char*, std::function<void(Given&)>> refused[] = {
      {"prompt: ", [](Given& given) { given.clear_text(); }},
      {"token_ids: ", [](Given& given) { given.mutable_token_ids()->add_ids(4'000'000'000u); }},
      {"request_id: ", [](Given& given) { given.set_request_id(std::string(257, 'x')); }},
      {"truncate_prompt_tokens: ", [](Given& given) { given.set_truncate_prompt_tokens(1); }},
      {"media: ", [](Given& given) { given.add_media(); }},
      {"lora_name: ", [](Given& given) { given.set_lora_name("l"); }},
      {"sampling.num_sequences: ", [](Given& given) { given.mutable_sampling()->set_num_sequences(2); }},
      {"sampling.top_k: ", [](Given& given) { given.mutable_sampling()->set_top_k(4'000'000'000u); }},
      {"decoding.allowed_token_ids: ",
       [](Given& given) { given.mutable_decoding()->add_allowed_token_ids(1); }},
      {"decoding.structural_tag: ", [](Given& given) { given.mutable_decoding()->set_structural_tag("{}"); }},
      {"stopping.min_new_tokens: ", [](Given& given) { given.mutable_stopping()->set_min_new_tokens(1); }},
      {"stopping.include_stop_strings: ",
       [](Given& given) { given.mutable_stopping()->set_include_stop_strings(true); }},
      {"response.prompt_token_ids: ",
       [](Given& given) { given.mutable_response()->set_prompt_token_ids(true); }},
      {"response.prompt_logprobs: ",
       [](Given& given) { given.mutable_response()->set_prompt_logprobs(true); }},
      {"response.prompt_candidates: ",
       [](Given& given) { given.mutable_response()->mutable_prompt_candidates(); }},
      {"response.output_candidates: ",
       [](Given& given) { given.mutable_response()->mutable_output_candidates()->set_all(true); }},
      {"kv.bypass_prefix_cache: ", [](Given& given) { given.mutable_kv()->set_bypass_prefix_cache(true); }},
      {"kv.cache_salt: ", [](Given& given) { given.mutable_kv()->set_cache_salt("s"); }},
      {"kv.kv_transfer_params: ", [](Given& given) { given.mutable_kv()->mutable_kv_transfer_params(); }},
      {"kv.ec_transfer_params: ", [](Given& given) { given.mutable_kv()->mutable_ec_transfer_params(); }}};
  for (const auto& [name, set] : refused) {
    Given given = Prompt();
    set(given);
    const absl::Status status = ReadRequest(given, false).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(name));
  }
}

}  // namespace
}  // namespace baton::router::vllm
