// Answers that go on after a cut, over real gRPC, with workers of the product: every kind of answer is, in
// pieces, what it is in one.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "baton/v1/inference.grpc.pb.h"
#include "common/rpc/status.h"
#include "decode_service/server.h"
#include "router/router.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

class ResumeTest : public ::testing::Test {
 protected:
  // A choice of an answer, as its client has it.
  struct Choice {
    std::string text;
    std::string parts;  // of typed parts, in words
    std::vector<int32_t> ids;
    std::vector<uint32_t> digests;
    uint32_t tokens = 0;
    int logprobs = 0;
    std::vector<std::string> traces = {};  // serialized
    v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
    uint32_t prompt_tokens = 0, completion_tokens = 0, thinking_tokens = 0;

    bool operator==(const Choice&) const = default;
  };
  struct Client {
    std::string id;
    uint64_t seed = 0;
    std::string build;
    std::map<uint32_t, Choice> choices;
    absl::Status status;

    template <typename Message>
    void Take(const Message& message) {
      if (message.has_started()) {
        id = message.started().request_id();
        seed = message.started().seed();
        build = message.started().build();
      } else if (message.has_delta()) {
        const v1::Delta& delta = message.delta();
        Choice& choice = choices[delta.choice()];
        choice.text += delta.text();
        choice.tokens += delta.tokens();
        choice.logprobs += delta.logprobs_size();
        for (const v1::SamplingTrace& trace : delta.sampling())
          choice.traces.push_back(trace.SerializeAsString());
        choice.ids.insert(choice.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
        choice.digests.insert(choice.digests.end(), delta.logits_digests().begin(),
                              delta.logits_digests().end());
        for (const v1::PartEvent& part : delta.parts()) {
          if (part.has_start()) choice.parts += "[" + std::to_string(part.start().kind()) + part.start().id();
          choice.parts += part.text() + part.arguments_json();
          if (part.has_end()) choice.parts += part.end().complete() ? "]" : ")";
        }
      } else {
        const v1::Finished& finished = message.finished();
        Choice& choice = choices[finished.choice()];
        choice.reason = finished.reason();
        choice.prompt_tokens = finished.usage().prompt_tokens();
        choice.completion_tokens = finished.usage().completion_tokens();
        choice.thinking_tokens = finished.usage().thinking_tokens();
      }
    }
  };

  ResumeTest() {
    worker::Options options;
    options.engine.model_folder = kTiny;
    options.engine.threads = 1;
    options.engine.kv_bytes = int64_t{16} << 20;
    decode_ = *decode_service::DecodeServer::Start({.worker = options});
    for (Served& served : routers_) served = StartRouter();
  }

  struct Served {
    std::unique_ptr<Router> router;
    std::unique_ptr<v1::Inference::Stub> stub;
  };
  Served StartRouter() {
    RouterOptions options;
    options.models = {{.folder = kTiny}};
    options.decode = {decode_->address()};
    options.keepalive.timeout = Scaled(absl::Seconds(60));
    Served served{*Router::Start(options), nullptr};
    Await([&] { return served.router->fleet().settled(); }, "word of the worker at the router");
    served.stub = v1::Inference::NewStub(
        grpc::CreateChannel(served.router->address(), grpc::InsecureChannelCredentials()));
    return served;
  }

  // Reads until the stream ends, or until the client has had `deltas` deltas of it and cancels.
  template <typename Message, typename Open>
  static void Read(Client& client, size_t deltas, const Open& open) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    const auto reader = open(&context);
    Message message;
    while (deltas > 0 && reader->Read(&message)) {
      client.Take(message);
      if (message.has_delta()) --deltas;
    }
    if (deltas == 0) context.TryCancel();
    while (reader->Read(&message)) continue;  // lost
    client.status = rpc::FromGrpc(reader->Finish());
  }

  // Puts `request` to the first router, and goes on after every `step` deltas, at one router after the
  // other; with the request where `bring` says so.
  Client InPieces(const v1::ChatRequest& request, size_t step, bool move) {
    Client client;
    Read<v1::ChatResponse>(client, step,
                           [&](auto* context) { return routers_[0].stub->Chat(context, request); });
    for (size_t call = 1; !client.status.ok(); ++call) {
      if (!absl::IsCancelled(client.status) || call > 500) break;
      v1::ResumeRequest resume;
      resume.set_request_id(client.id);
      for (const auto& [number, choice] : client.choices) {
        while (resume.after_tokens_size() <= static_cast<int>(number)) resume.add_after_tokens(0);
        resume.set_after_tokens(static_cast<int>(number), choice.tokens);
      }
      if (move) {
        *resume.mutable_chat() = request;
        resume.mutable_chat()->mutable_sampling()->set_seed(client.seed);
        resume.mutable_chat()->mutable_options()->set_build(client.build);
      }
      v1::Inference::Stub& stub = *routers_[move ? call % 2 : 0].stub;
      Read<v1::ResumeResponse>(client, step, [&](auto* context) { return stub.Resume(context, resume); });
    }
    return client;
  }
  Client InOne(const v1::ChatRequest& request) {
    Client client;
    Read<v1::ChatResponse>(client, SIZE_MAX,
                           [&](auto* context) { return routers_[0].stub->Chat(context, request); });
    return client;
  }

  static v1::ChatRequest Ask(const std::string& text, uint32_t max_tokens) {
    v1::ChatRequest request;
    v1::Message* const message = request.mutable_conversation()->add_messages();
    message->set_role("user");
    message->set_content(text);
    request.mutable_sampling()->set_temperature(0.8f);
    request.mutable_sampling()->set_seed(11);
    request.mutable_stop()->set_max_tokens(max_tokens);
    return request;
  }

  // In pieces, at one router and moving between two, it is what it is in one.
  void ExpectEqualInPieces(v1::ChatRequest request) {
    const Client whole = InOne(request);
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    ASSERT_GT(whole.choices.at(0).tokens, 3u) << "nothing is cut";
    int number = 0;
    for (const bool move : {false, true}) {
      for (const size_t step : {1, 2, 5}) {
        request.mutable_options()->set_idempotency_key(
            testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(++number));
        const Client pieces = InPieces(request, step, move);
        EXPECT_TRUE(pieces.status.ok()) << pieces.status;
        EXPECT_EQ(pieces.choices, whole.choices) << "step " << step << (move ? ", moving" : "");
      }
    }
  }

  const std::string kTiny = BATON_SOURCE_DIR "/models/baton-tiny";
  std::unique_ptr<decode_service::DecodeServer> decode_;
  std::array<Served, 2> routers_;
};

TEST_F(ResumeTest, Text) {
  v1::ChatRequest request = Ask("Tell me a story.", 24);
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_logits_digest(true);
  request.mutable_output()->set_logprobs(true);
  request.mutable_output()->set_explain(true);
  ExpectEqualInPieces(request);
}

TEST_F(ResumeTest, StopStrings) {
  v1::ChatRequest request = Ask("Tell me a story.", 24);
  request.mutable_stop()->set_ignore_eos(true);
  for (const char* stop : {"zzz", "the q", "and the"}) request.mutable_stop()->add_stop(stop);
  ExpectEqualInPieces(request);
}

TEST_F(ResumeTest, SeveralChoices) {
  v1::ChatRequest request = Ask("Tell me a story.", 12);
  request.mutable_options()->set_n(3);
  ExpectEqualInPieces(request);
}

TEST_F(ResumeTest, ThinkingAndCallsOfTools) {
  v1::ChatRequest request = Ask("What is the weather in Oslo?", 80);
  request.mutable_sampling()->set_temperature(0);
  v1::Tool* const tool = request.mutable_conversation()->add_tools();
  tool->set_name("get_weather");
  tool->set_description("Get the weather of a city.");
  tool->set_parameters_json(
      R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})");
  ExpectEqualInPieces(request);
}

TEST_F(ResumeTest, AConstraint) {
  v1::ChatRequest request = Ask("Name a city.", 40);
  request.mutable_constraint()->set_json_schema(
      R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]})");
  ExpectEqualInPieces(request);
}

TEST_F(ResumeTest, WhatIsNotHeldGoesOnWithItsRequest) {
  v1::ChatRequest request = Ask("Tell me a story.", 24);
  const Client whole = InOne(request);
  request.mutable_options()->set_not_held(true);
  const Client refused = InOne(request);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status)) << "it has no key: " << refused.status;
  request.mutable_options()->set_idempotency_key("once");
  const Client first = InPieces(request, 2, /*move=*/false);
  EXPECT_EQ(rpc::ReasonOf(first.status), "ANSWER_NOT_HELD");
  const Client pieces = InPieces(request, 2, /*move=*/true);
  EXPECT_TRUE(pieces.status.ok()) << pieces.status;
  EXPECT_EQ(pieces.choices, whole.choices);
}

TEST_F(ResumeTest, AWholeAnswerIsTakenAgain) {
  v1::ChatUnaryRequest request;
  *request.mutable_chat() = Ask("Tell me a story.", 12);
  request.mutable_chat()->mutable_options()->set_idempotency_key("once");
  v1::ChatUnaryResponse first, second;
  for (v1::ChatUnaryResponse* response : {&first, &second}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::seconds(60)));
    const grpc::Status status = routers_[0].stub->ChatUnary(&context, request, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(context.GetServerInitialMetadata().find("baton-request-id")->second,
              first.started().request_id());
  }
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString()) << "timing and workers too";
}

}  // namespace
}  // namespace baton::router
