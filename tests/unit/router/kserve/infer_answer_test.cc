#include "router/kserve/infer_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::router::kserve {
namespace {

v1::GenerateResponse Started(uint32_t prompt_tokens) {
  v1::GenerateResponse response;
  response.mutable_started()->set_model("baton-tiny");
  response.mutable_started()->set_prompt_tokens(prompt_tokens);
  return response;
}

v1::GenerateResponse Piece(const std::string& text, std::vector<int32_t> ids, float logprob) {
  v1::GenerateResponse response;
  v1::Delta& delta = *response.mutable_delta();
  delta.set_text(text);
  delta.set_tokens(static_cast<uint32_t>(ids.size()));
  for (const int32_t id : ids) {
    delta.add_token_ids(id);
    delta.add_logprobs()->mutable_chosen()->set_logprob(logprob);
  }
  return response;
}

v1::GenerateResponse Finished(v1::FinishReason reason) {
  v1::GenerateResponse response;
  response.mutable_finished()->set_reason(reason);
  return response;
}

const inference::ModelInferResponse::InferOutputTensor* Find(const inference::ModelInferResponse& response,
                                                             const std::string& name) {
  for (const auto& output : response.outputs()) {
    if (output.name() == name) return &output;
  }
  return nullptr;
}

std::string Text(const inference::ModelInferResponse& response, const std::string& name = "text_output") {
  const auto* const output = Find(response, name);
  return output == nullptr ? "(none)" : output->contents().bytes_contents(0);
}

TEST(InferAnswerTest, AWholeAnswerIsOneMessage) {
  InferAnswer answer({.id = "7",
                      .before = "Once",
                      .finish_reason = true,
                      .cumulative_logprob = true,
                      .input_tokens = true,
                      .output_tokens = true});
  EXPECT_FALSE(answer.Add(Started(3)).has_value());
  EXPECT_FALSE(answer.Add(Piece(" upon", {4, 5}, -0.5)).has_value());
  EXPECT_FALSE(answer.Add(Piece(" a", {6}, -1)).has_value());
  EXPECT_FALSE(answer.Add(Finished(v1::FINISH_REASON_LENGTH)).has_value());
  const auto last = answer.Last();
  EXPECT_EQ(last.id(), "7");
  EXPECT_EQ(last.model_name(), "baton-tiny");
  EXPECT_EQ(Text(last), "Once upon a");
  EXPECT_EQ(Text(last, "finish_reason"), "length");
  EXPECT_EQ(Find(last, "cumulative_logprob")->contents().fp32_contents(0), -2.0f);
  EXPECT_EQ(Find(last, "num_input_tokens")->contents().uint_contents(0), 3u);
  EXPECT_EQ(Find(last, "num_output_tokens")->contents().uint_contents(0), 3u);
  EXPECT_TRUE(last.parameters().at("triton_final_response").bool_param());
}

TEST(InferAnswerTest, AStreamIsAMessageForEachPieceAndOneMore) {
  InferAnswer answer({.stream = true, .finish_reason = true, .output_tokens = true});
  answer.Add(Started(3));
  const auto first = answer.Add(Piece(" upon", {4, 5}, 0));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(Text(*first), " upon");
  EXPECT_EQ(Text(*first, "finish_reason"), "");
  EXPECT_EQ(Find(*first, "num_output_tokens")->contents().uint_contents(0), 2u);
  EXPECT_FALSE(first->parameters().at("triton_final_response").bool_param());
  EXPECT_FALSE(answer.Add(Piece("", {6}, 0)).has_value())
      << "half a character: its token counts with the next";
  const auto second = answer.Add(Piece(" \xC3\xA4", {7}, 0));
  EXPECT_EQ(Find(*second, "num_output_tokens")->contents().uint_contents(0), 2u);
  answer.Add(Finished(v1::FINISH_REASON_STOP_STRING));
  const auto last = answer.Last();
  EXPECT_EQ(Text(last), "");
  EXPECT_EQ(Text(last, "finish_reason"), "stop");
  EXPECT_TRUE(last.parameters().at("triton_final_response").bool_param());
}

TEST(InferAnswerTest, RawBytesForThoseWhoSendThem) {
  InferAnswer answer({.raw = true, .text = false, .input_tokens = true});
  answer.Add(Started(2));
  answer.Add(Piece("ab", {258, 5}, 0));
  answer.Add(Finished(v1::FINISH_REASON_STOP_TOKEN));
  const auto last = answer.Last();
  ASSERT_EQ(last.outputs_size(), 2);
  EXPECT_EQ(last.outputs(0).name(), "output_ids");
  EXPECT_THAT(last.outputs(0).shape(), testing::ElementsAre(1, 2));
  EXPECT_FALSE(last.outputs(0).has_contents());
  EXPECT_THAT(last.raw_output_contents(),
              testing::ElementsAre(std::string("\x02\x01\0\0\x05\0\0\0", 8), std::string("\x02\0\0\0", 4)));
}

}  // namespace
}  // namespace baton::router::kserve
