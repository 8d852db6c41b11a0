#include "router/kserve/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace baton::router::kserve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Infer = inference::ModelInferRequest;

Infer::InferInputTensor& Add(Infer& infer, const std::string& name, const std::string& type,
                             std::vector<int64_t> shape = {1}) {
  auto& input = *infer.add_inputs();
  input.set_name(name);
  input.set_datatype(type);
  for (const int64_t size : shape) input.add_shape(size);
  return input;
}

void AddText(Infer& infer, const std::string& name, const std::string& text,
             std::vector<int64_t> shape = {1}) {
  Add(infer, name, "BYTES", std::move(shape)).mutable_contents()->add_bytes_contents(text);
}

void AddFlag(Infer& infer, const std::string& name, bool flag) {
  Add(infer, name, "BOOL").mutable_contents()->add_bool_contents(flag);
}

Infer Prompt(const std::string& text = "Once") {
  Infer infer;
  infer.set_id("7");
  infer.set_model_name("m");
  AddText(infer, "text_input", text);
  return infer;
}

std::string Refused(const Infer& infer, bool streams = true) {
  const auto read = ReadInferRequest(infer, streams);
  EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
  return std::string(read.status().message());
}

TEST(InferRequestTest, ThePromptIsTextOrTokens) {
  auto read = ReadInferRequest(Prompt(), true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request.model(), "m");
  EXPECT_EQ(read->request.text(), "Once");
  EXPECT_EQ(read->reply.id, "7");
  EXPECT_FALSE(read->reply.raw);
  Infer tokens;
  auto& ids = Add(tokens, "input_ids", "INT32", {1, 3});
  for (const int id : {4, 5, 6}) ids.mutable_contents()->add_int_contents(id);
  read = ReadInferRequest(tokens, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->request.token_ids().ids(), ElementsAre(4, 5, 6));
  EXPECT_TRUE(read->request.output().token_ids());
  EXPECT_FALSE(read->reply.text);
  ids.mutable_contents()->set_int_contents(1, -1);
  EXPECT_THAT(Refused(tokens), HasSubstr("input_ids: -1"));
  EXPECT_THAT(Refused({}), HasSubstr("the prompt is one of"));
  AddText(tokens, "text_input", "and text");
  EXPECT_THAT(Refused(tokens), HasSubstr("input_ids"));
}

TEST(InferRequestTest, BothSpellingsOfParametersAndNumbersAsTexts) {
  Infer infer = Prompt();
  AddText(infer, "sampling_parameters",
          R"({"temperature": "0.5", "top_p": 0.9, "top_k": -1, "max_tokens": "12", "seed": 3, "stop": "x",
              "stop_token_ids": [9], "ignore_eos": true, "skip_special_tokens": false, "min_p": null, "n": 1,
              "presence_penalty": 0.25})");
  auto read = ReadInferRequest(infer, true);
  ASSERT_TRUE(read.ok()) << read.status();
  const v1::SamplingParams& sampling = read->request.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.9f);
  EXPECT_EQ(sampling.top_k(), 0);
  EXPECT_EQ(sampling.seed(), 3u);
  EXPECT_EQ(sampling.presence_penalty(), 0.25f);
  EXPECT_FALSE(sampling.has_min_p());
  EXPECT_EQ(read->request.stop().max_tokens(), 12u);
  EXPECT_THAT(read->request.stop().stop(), ElementsAre("x"));
  EXPECT_THAT(read->request.stop().stop_token_ids(), ElementsAre(9));
  EXPECT_TRUE(read->request.stop().ignore_eos());
  EXPECT_TRUE(read->request.output().special_tokens());

  Add(infer, "temperature", "FP32", {1, 1}).mutable_contents()->add_fp32_contents(0.75);
  Add(infer, "max_tokens", "INT32").mutable_contents()->add_int_contents(5);
  Add(infer, "random_seed", "UINT64").mutable_contents()->add_uint64_contents(~uint64_t{0});
  auto& words = *Add(infer, "stop_words", "BYTES", {1, 2}).mutable_contents();
  words.add_bytes_contents("y");
  words.add_bytes_contents("z");
  read = ReadInferRequest(infer, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request.sampling().temperature(), 0.75f) << "a tensor wins";
  EXPECT_EQ(read->request.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(read->request.stop().max_tokens(), 5u);
  EXPECT_THAT(read->request.stop().stop(), ElementsAre("x", "y", "z"));
}

TEST(InferRequestTest, NothingIsIgnored) {
  const auto parameters = [](const std::string& json) {
    Infer infer = Prompt();
    AddText(infer, "sampling_parameters", json);
    return Refused(infer);
  };
  EXPECT_THAT(parameters(R"({"best_of": 2})"), HasSubstr("sampling_parameters.best_of: not served"));
  EXPECT_THAT(parameters(R"({"n": 2})"), HasSubstr("sampling_parameters.n: "));
  EXPECT_THAT(parameters(R"({"temperature": "warm"})"), HasSubstr("temperature: not a number"));
  EXPECT_THAT(parameters(R"({"temperature": "nan"})"), HasSubstr("temperature: not a number"));
  EXPECT_THAT(parameters(R"({"max_tokens": -1})"), HasSubstr("max_tokens: -1"));
  EXPECT_THAT(parameters(R"({"max_tokens": 1.5})"), HasSubstr("max_tokens: not a whole number"));
  EXPECT_THAT(parameters(R"({"stop": [1]})"), HasSubstr("stop: "));
  EXPECT_THAT(parameters("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(parameters("{"), HasSubstr("sampling_parameters: "));
  Infer unknown = Prompt();
  AddText(unknown, "image", "...");
  EXPECT_THAT(Refused(unknown), HasSubstr("\"image\": not served"));
  Infer output = Prompt();
  output.add_outputs()->set_name("logits");
  EXPECT_THAT(Refused(output), HasSubstr("output \"logits\""));
  Infer version = Prompt();
  version.set_model_version("2");
  EXPECT_TRUE(absl::IsNotFound(ReadInferRequest(version, true).status()));
  version.set_model_version("1");
  EXPECT_TRUE(ReadInferRequest(version, true).ok());
}

TEST(InferRequestTest, TensorsAreWhatTheySay) {
  Infer twice = Prompt();
  AddText(twice, "text_input", "again");
  EXPECT_THAT(Refused(twice), HasSubstr("two inputs"));
  Infer type = Prompt();
  AddText(type, "max_tokens", "5");
  EXPECT_THAT(Refused(type), HasSubstr("a whole number is needed, not \"BYTES\""));
  Infer shape = Prompt();
  AddText(shape, "sampling_parameters", "{}", {2});
  EXPECT_THAT(Refused(shape), HasSubstr("not as many as its shape says"));
  Infer huge = Prompt();
  AddText(huge, "sampling_parameters", "{}", {int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_THAT(Refused(huge), HasSubstr("no such shape"));
  Infer negative = Prompt();
  AddText(negative, "sampling_parameters", "{}", {-1});
  EXPECT_THAT(Refused(negative), HasSubstr("no such shape"));
}

std::string RawText(const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text;
}

TEST(InferRequestTest, RawBytesAreReadToTheLast) {
  Infer infer;
  Add(infer, "text_input", "BYTES");
  Add(infer, "temperature", "FP64");
  Add(infer, "stop_words", "BYTES", {2});
  Add(infer, "stream", "BOOL");
  const double half = 0.5;
  infer.add_raw_input_contents(RawText("Once"));
  infer.add_raw_input_contents(&half, sizeof(half));
  infer.add_raw_input_contents(RawText("") + RawText("b"));
  infer.add_raw_input_contents(std::string("\x01", 1));
  const auto read = ReadInferRequest(infer, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request.text(), "Once");
  EXPECT_EQ(read->request.sampling().temperature(), 0.5f);
  EXPECT_THAT(read->request.stop().stop(), ElementsAre("b")) << "an empty word is none";
  EXPECT_TRUE(read->reply.stream);
  EXPECT_TRUE(read->reply.raw);
  // Every byte less, and one more.
  for (int i = 0; i < infer.raw_input_contents_size(); ++i) {
    const std::string whole = infer.raw_input_contents(i);
    for (size_t size = 0; size < whole.size(); ++size) {
      infer.set_raw_input_contents(i, whole.substr(0, size));
      EXPECT_FALSE(ReadInferRequest(infer, true).ok()) << i << " " << size;
    }
    infer.set_raw_input_contents(i, whole + "x");
    EXPECT_FALSE(ReadInferRequest(infer, true).ok()) << i;
    infer.set_raw_input_contents(i, whole);
  }
  infer.add_raw_input_contents("");
  EXPECT_THAT(Refused(infer), HasSubstr("5 entries for 4 inputs"));
}

TEST(InferRequestTest, OnlyStreamsStreamAndAWholeAnswerRepeatsThePrompt) {
  Infer infer = Prompt();
  EXPECT_EQ(ReadInferRequest(infer, false)->reply.before, "Once");
  AddFlag(infer, "exclude_input_in_output", true);
  EXPECT_EQ(ReadInferRequest(infer, false)->reply.before, "");
  Infer streamed = Prompt();
  AddFlag(streamed, "stream", true);
  EXPECT_EQ(ReadInferRequest(streamed, true)->reply.before, "");
  EXPECT_THAT(Refused(streamed, false), HasSubstr("call ModelStreamInfer"));
  AddFlag(streamed, "exclude_input_in_output", false);
  EXPECT_THAT(Refused(streamed), HasSubstr("exclude_input_in_output"));
}

void AddWhole(Infer& infer, const std::string& name, int32_t value) {
  Add(infer, name, "INT32", {1, 1}).mutable_contents()->add_int_contents(value);
}

TEST(InferRequestTest, NamesOfTensorRtLlmsModels) {
  Infer infer;
  auto& ids = Add(infer, "input_ids", "INT32", {1, 3});
  for (const int id : {4, 5, 6}) ids.mutable_contents()->add_int_contents(id);
  AddWhole(infer, "input_lengths", 3);
  AddWhole(infer, "request_output_len", 12);
  AddWhole(infer, "end_id", 2);
  AddWhole(infer, "pad_id", 2);
  AddWhole(infer, "beam_width", 1);
  AddWhole(infer, "min_length", 0);
  AddWhole(infer, "runtime_top_k", 7);
  Add(infer, "runtime_top_p", "FP32").mutable_contents()->add_fp32_contents(0.5f);
  AddFlag(infer, "streaming", true);
  AddFlag(infer, "return_log_probs", false);
  AddFlag(infer, "return_logprobs", false);
  AddText(infer, "bad_words", "", {1, 1});
  AddText(infer, "stop_words", "", {1, 1});
  for (const char* const output : {"output_ids", "sequence_length", "cum_log_probs"})
    infer.add_outputs()->set_name(output);
  const auto read = ReadInferRequest(infer, true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->request.stop().max_tokens(), 12u);
  EXPECT_THAT(read->request.stop().stop_token_ids(), ElementsAre(2));
  EXPECT_TRUE(read->request.stop().stop().empty()) << "an empty word is none";
  EXPECT_EQ(read->request.sampling().top_k(), 7);
  EXPECT_EQ(read->request.sampling().top_p(), 0.5f);
  EXPECT_TRUE(read->request.output().logprobs());
  EXPECT_TRUE(read->reply.stream);
  EXPECT_TRUE(read->reply.sequence_length);
  EXPECT_TRUE(read->reply.cum_log_probs);
}

TEST(InferRequestTest, WhatOtherServersHaveIsRefusedByName) {
  const auto refused = [](auto add) {
    Infer infer = Prompt();
    add(infer);
    return Refused(infer);
  };
  for (const char* const count : {"beam_width", "num_return_sequences", "min_length", "min_tokens"}) {
    EXPECT_THAT(refused([&](Infer& infer) { AddWhole(infer, count, 2); }),
                HasSubstr(std::string(count) + ": "));
  }
  for (const char* const flag : {"return_log_probs", "return_logprobs", "return_num_token_ids",
                                 "return_context_logits", "return_generation_logits"}) {
    EXPECT_THAT(refused([&](Infer& infer) { AddFlag(infer, flag, true); }),
                HasSubstr(std::string(flag) + ": "));
  }
  EXPECT_THAT(refused([](Infer& infer) { AddText(infer, "bad_words", "x"); }), HasSubstr("bad_words: "));
  EXPECT_THAT(refused([](Infer& infer) { AddWhole(infer, "input_lengths", 3); }),
              HasSubstr("input_lengths: 3"));
  EXPECT_THAT(refused([](Infer& infer) {
                AddWhole(infer, "max_tokens", 3);
                AddWhole(infer, "request_output_len", 3);
              }),
              HasSubstr("max_tokens and request_output_len"));
  EXPECT_THAT(refused([](Infer& infer) {
                AddFlag(infer, "stream", true);
                AddFlag(infer, "streaming", true);
              }),
              HasSubstr("stream and streaming"));
  EXPECT_THAT(refused([](Infer& infer) { AddWhole(infer, "draft_input_ids", 3); }),
              HasSubstr("\"draft_input_ids\""));
}

}  // namespace
}  // namespace baton::router::kserve
