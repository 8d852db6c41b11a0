// A gateway before several scripted routers: which of them has a call, and what becomes of an answer whose
// router breaks off.
#include "gateway/routers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/status.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/gateway/ask.h"
#include "tests/patience.h"

namespace baton::gateway {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using telemetry::HttpAnswer;
using telemetry::HttpPeer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr const char* kPath = "/v1/chat/completions";

bool AwaitLine(const telemetry::Metrics& metrics, const std::string& line) {
  return Await([&] { return metrics.Text().find(line + "\n") != std::string::npos; }, line.c_str());
}

// A connection that breaks: gRPC's own error, which has no reason of a router.
absl::Status Broken() { return absl::UnavailableError("Socket closed"); }

// So many messages of an answer, and an end that is none.
Script Part(const std::vector<int32_t>& tokens, size_t messages, absl::Status end) {
  Script script = AnswerWith(tokens, 4);
  script.steps.resize(messages);
  script.end = std::move(end);
  return script;
}

std::string Stream(const Gateway& gateway, const std::string& body) {
  HttpPeer peer(gateway.address());
  EXPECT_TRUE(peer.Send(Post(kPath, body, "Connection: close\r\n")));
  return peer.ReadToEnd();
}

std::string TextOf(const std::string& stream) {
  std::string text;
  for (const auto line : absl::StrSplit(stream, '\n')) {
    if (line.substr(0, 7) != "data: {") continue;
    const Json piece = Json::parse(std::string(line.substr(6)));
    for (const Json& choice : piece.value("choices", Json::array())) {
      if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
    }
  }
  return text;
}

// Two routers, of which the second has no call until the first has failed: the gateway knows it as the
// second.
class FailoverTest : public ::testing::Test {
 protected:
  void Begin(fakes::FakeInferenceOptions first, fakes::FakeInferenceOptions second) {
    first_ = std::make_unique<FakeInference>(std::move(first));
    second_ = std::make_unique<FakeInference>(std::move(second));
    Front({first_->address(), second_->address()}, 2);
  }
  void Front(const std::vector<std::string>& routers, int ready) {
    auto gateway = Gateway::Start({.routers = routers, .resolve_every = absl::Milliseconds(10)});
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    ASSERT_TRUE(AwaitLine(gateway_->metrics(), "baton_gateway_routers_ready " + std::to_string(ready)));
  }

  std::unique_ptr<FakeInference> first_, second_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(FailoverTest, AnAnswerGoesOnBehindWhatItsClientHas) {
  for (const absl::Status& end :
       {Broken(), rpc::WithReason(absl::UnavailableError("leaving"), v1::REASON_ROUTER_DRAINING)}) {
    SCOPED_TRACE(end.ToString());
    Begin({.chat =
               [&](const v1::ChatRequest&) {
                 return Part({1, 2, 3, 4}, 3, end);
               }},
          {.resume = [](const v1::ResumeRequest&) {
            return AnswerWith({3, 4}, 4);
          }});
    const std::string stream = Stream(*gateway_, kHiStreamed);
    EXPECT_EQ(TextOf(stream), "t1 t2 t3 t4 ");
    EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
    ASSERT_EQ(second_->resume_requests().size(), 1u);
    const v1::ResumeRequest resumed = second_->resume_requests()[0];
    EXPECT_EQ(resumed.request_id(), "fake-1");
    EXPECT_THAT(resumed.after_tokens(), ElementsAre(2));
    // The request as the first router had it, with what that drew.
    v1::ChatRequest same = first_->chat_requests()[0];
    EXPECT_TRUE(same.sampling().has_seed());
    same.mutable_sampling()->set_seed(42);
    same.mutable_options()->set_build("fedcba9876543210");
    EXPECT_EQ(resumed.chat().SerializeAsString(), same.SerializeAsString());
    EXPECT_THAT(gateway_->metrics().Text(), HasSubstr(R"(baton_gateway_tries_total{how="resumed"} 1)"));
  }
}

TEST_F(FailoverTest, AWholeAnswerHasBothParts) {
  Begin({.chat =
             [](const v1::ChatRequest&) {
               return Part({1, 2, 3}, 2, Broken());
             }},
        {.resume = [](const v1::ResumeRequest&) {
          return AnswerWith({2, 3}, 4);
        }});
  const HttpAnswer answer = Ask(*gateway_, Post(kPath, kHi));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["choices"][0]["message"]["content"], "t1 t2 t3 ");
}

TEST_F(FailoverTest, AChoiceThatHasEndedDoesNotEndTwice) {
  const auto of_choice = [](v1::GenerateResponse event, uint32_t choice) {
    if (event.has_delta()) event.mutable_delta()->set_choice(choice);
    if (event.has_finished()) event.mutable_finished()->set_choice(choice);
    return Script::Step{{}, event};
  };
  Begin({.chat =
             [&](const v1::ChatRequest&) {
               Script script = Part({1}, 3, Broken());  // with the end of choice 0
               script.steps.insert(script.steps.begin() + 1, of_choice(script.steps[1].event, 1));
               return script;
             }},
        {.resume = [&](const v1::ResumeRequest&) {
          Script script = AnswerWith({5}, 4);
          script.steps[1] = of_choice(script.steps[1].event, 1);
          script.steps.push_back(of_choice(script.steps[2].event, 1));
          return script;
        }});
  const std::string stream =
      Stream(*gateway_, R"({"messages": [{"role": "user", "content": "hi"}], "stream": true, "n": 2})");
  ASSERT_EQ(second_->resume_requests().size(), 1u);
  EXPECT_THAT(second_->resume_requests()[0].after_tokens(), ElementsAre(1, 1));
  size_t ends = 0;
  for (size_t at = 0; (at = stream.find(R"("finish_reason":"length")", at)) != std::string::npos; ++at)
    ++ends;
  EXPECT_EQ(ends, 2u) << stream;
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
}

TEST_F(FailoverTest, WithNothingOfTheAnswerItIsAskedForAnew) {
  Begin({.chat = [](const v1::ChatRequest&) { return Script{.steps = {}, .end = Broken()}; }}, {});
  const HttpAnswer answer = Ask(*gateway_, Post(kPath, kHi));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["choices"][0]["message"]["content"], "you said: hi");
  // Both draw the same, and find that it is one answer.
  ASSERT_EQ(second_->chat_requests().size(), 1u);
  EXPECT_EQ(first_->chat_requests()[0].SerializeAsString(), second_->chat_requests()[0].SerializeAsString());
  EXPECT_TRUE(second_->chat_requests()[0].options().not_held());
  EXPECT_TRUE(second_->chat_requests()[0].sampling().has_seed());
  EXPECT_THAT(gateway_->metrics().Text(), HasSubstr(R"(baton_gateway_tries_total{how="anew"} 1)"));
}

TEST_F(FailoverTest, OneOfSeveralPromptsGoesOn) {
  // They are spread over both.
  const fakes::FakeInferenceOptions each = {
      .generate =
          [](const v1::GenerateRequest& request) {
            return request.text() == "b" ? Part({1, 2}, 2, Broken()) : AnswerWith({7}, 1);
          },
      .resume = [](const v1::ResumeRequest&) { return AnswerWith({2}, 1); }};
  Begin(each, each);
  const HttpAnswer answer = Ask(*gateway_, Post("/v1/completions", R"({"prompt": ["a", "b", "c"]})"));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  const Json choices = Json::parse(answer.body)["choices"];
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[0]["text"], "t7 ");
  EXPECT_EQ(choices[1]["text"], "t1 t2 ");
  EXPECT_EQ(choices[2]["text"], "t7 ");
}

// A rollout of new weights, say: the break is what the client hears of, after which it may try again.
TEST_F(FailoverTest, WhereNoRouterGoesOnTheBreakIsTold) {
  Begin({.chat =
             [](const v1::ChatRequest&) {
               return Part({1, 2}, 2, Broken());
             }},
        {.resume = [](const v1::ResumeRequest&) {
          return Script{.steps = {},
                        .end = rpc::WithReason(absl::FailedPreconditionError("another build"),
                                               v1::REASON_BUILD_NOT_SERVED)};
        }});
  EXPECT_EQ(Ask(*gateway_, Post(kPath, kHi)).status(), 503);
  EXPECT_EQ(second_->resume_requests().size(), 1u);
}

TEST_F(FailoverTest, ABusyRouterIsAskedAgain) {
  int asked = 0;  // by one call after the other
  Begin({.chat =
             [](const v1::ChatRequest&) {
               return Part({1, 2}, 2, Broken());
             },
         .resume = [](const v1::ResumeRequest&) { return Script{.steps = {}, .end = Broken()}; }},
        {.resume = [&asked](const v1::ResumeRequest&) {
          const absl::Status busy =
              rpc::WithReason(absl::ResourceExhaustedError("busy"), v1::REASON_OVERLOADED);
          return ++asked == 1 ? Script{.steps = {}, .end = rpc::WithRetryDelay(busy, absl::Milliseconds(1))}
                              : AnswerWith({2}, 4);
        }});
  const HttpAnswer answer = Ask(*gateway_, Post(kPath, kHi));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["choices"][0]["message"]["content"], "t1 t2 ");
}

// It ends before it has seen the call.
TEST_F(FailoverTest, ARouterThatEndsWithAResumeOnItsWayIsNoAnswer) {
  int asked = 0;  // by one call after the other
  Begin({.chat =
             [](const v1::ChatRequest&) {
               return Part({1, 2}, 2, Broken());
             },
         .resume = [](const v1::ResumeRequest&) { return AnswerWith({2}, 4); }},
        {.resume = [&asked](const v1::ResumeRequest&) {
          ++asked;
          return Script{.steps = {}, .end = absl::CancelledError()};
        }});
  const HttpAnswer answer = Ask(*gateway_, Post(kPath, kHi));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["choices"][0]["message"]["content"], "t1 t2 ");
  EXPECT_EQ(asked, 1);
}

TEST_F(FailoverTest, AClientsKeyDrawsTheSameSeedEverywhere) {
  Begin({.chat = [](const v1::ChatRequest&) { return Script{.steps = {}, .end = Broken()}; }}, {});
  const std::string asked = Post(kPath, kHi, "Idempotency-Key: once\r\n");
  EXPECT_EQ(Ask(*gateway_, asked).status(), 200);
  EXPECT_EQ(Ask(*gateway_, asked).status(), 200);
  ASSERT_EQ(second_->chat_requests().size(), 2u);
  for (const v1::ChatRequest& request : second_->chat_requests()) {
    EXPECT_EQ(request.SerializeAsString(), first_->chat_requests().at(0).SerializeAsString());
    EXPECT_FALSE(request.options().not_held());
    EXPECT_TRUE(request.sampling().has_seed());
  }
}

// A client that does not read is given up by the router, which resets the stream: nobody is asked for more.
TEST_F(FailoverTest, AResetInTheMiddleIsNoLostRouter) {
  for (const absl::Status& end : {absl::CancelledError(), absl::InternalError("RST_STREAM")}) {
    Begin({.chat = [&](const v1::ChatRequest&) { return Part({1, 2}, 2, end); }}, {});
    EXPECT_NE(Ask(*gateway_, Post(kPath, kHi)).status(), 200);
    EXPECT_TRUE(second_->resume_requests().empty());
  }
}

TEST_F(FailoverTest, WhatARouterSaysItselfIsTheAnswer) {
  const absl::Status none = rpc::WithReason(absl::UnavailableError("none is up"), v1::REASON_NO_WORKER);
  Begin({.chat = [&](const v1::ChatRequest&) { return Script{.steps = {}, .end = none}; }}, {});
  EXPECT_EQ(Ask(*gateway_, Post(kPath, kHi)).status(), 503);
  EXPECT_TRUE(second_->chat_requests().empty());
}

TEST_F(FailoverTest, TheClientHearsOfABreakThatStays) {
  first_ = std::make_unique<FakeInference>(fakes::FakeInferenceOptions{
      .chat = [](const v1::ChatRequest&) { return Script{.steps = {}, .end = Broken()}; }});
  Front({first_->address()}, 1);
  EXPECT_EQ(Ask(*gateway_, Post(kPath, kHi)).status(), 503);
  EXPECT_EQ(first_->chat_requests().size(), 6u) << "five tries after the first";
}

TEST_F(FailoverTest, NobodyIsAskedForAClientThatHasLeft) {
  first_ = std::make_unique<FakeInference>(fakes::FakeInferenceOptions{
      .chat = [](const v1::ChatRequest&) { return Script{.steps = {}, .end = Broken()}; }});
  Front({first_->address()}, 1);
  {
    HttpPeer peer(gateway_->address());
    ASSERT_TRUE(peer.Send(Post(kPath, kHiStreamed)));
    ASSERT_TRUE(Await([&] { return first_->chat_requests().size() >= 2; }, "a try"));
  }
  gateway_->Stop(Scaled(absl::Seconds(60)));  // which waits for all exchanges
  EXPECT_LT(first_->chat_requests().size(), 6u);
}

TEST_F(FailoverTest, QuestionsGoToAnotherRouter) {
  first_ = std::make_unique<FakeInference>();
  const std::string gone = first_->address();
  first_ = nullptr;
  second_ = std::make_unique<FakeInference>();
  second_->SetServing(false);  // so it is no better than the other
  Front({gone, second_->address()}, 0);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ask(*gateway_, "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
    EXPECT_EQ(Ask(*gateway_, Post(kPath, kHi)).status(), 200);
  }
  EXPECT_THAT(gateway_->metrics().Text(), HasSubstr(R"(baton_gateway_tries_total{how="anew"})"));
}

TEST(RoutersTest, ACallGoesToTheReadyRouterWithTheFewest) {
  FakeInference routers[3];
  routers[2].SetServing(false);
  telemetry::Metrics metrics;
  Probe probe(metrics);
  std::vector<ServiceAddress> addresses;
  for (const FakeInference& router : routers)
    addresses.push_back(ServiceAddress::Parse(router.address()).value());
  Routers known(addresses, nullptr, nullptr, absl::Milliseconds(10), probe);
  ASSERT_TRUE(AwaitLine(metrics, "baton_gateway_routers_ready 2"));
  EXPECT_TRUE(AwaitLine(metrics, "baton_gateway_routers 3"));
  std::vector<std::shared_ptr<Router>> held;
  for (int i = 0; i < 6; ++i) held.push_back(known.Pick());
  for (int i = 0; i < 2; ++i) {
    const auto at = [&](const auto& one) { return one->address == routers[i].address(); };
    EXPECT_EQ(std::ranges::count_if(held, at), 3);
  }
  // One that ends makes room, where it was.
  const std::string freed = held[3]->address;
  held.erase(held.begin() + 3);
  EXPECT_EQ(known.Pick()->address, freed);
  EXPECT_NE(known.Pick(freed)->address, freed);
  // None is ready: some router can say why.
  routers[0].SetServing(false);
  routers[1].SetServing(false);
  ASSERT_TRUE(AwaitLine(metrics, "baton_gateway_routers_ready 0"));
  held.clear();
  EXPECT_EQ(known.Pick()->calls, 1);
}

// Says what the test has put in.
class ScriptedResolver final : public Resolver {
 public:
  void Resolve(const std::string& host, std::function<void(Answer)> done) override {
    EXPECT_EQ(host, "routers.example");
    absl::MutexLock lock(&mutex_);
    done(answer_);
    ++answered_;
  }
  // And waits until that was asked for.
  void Say(Answer answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
    answered_ = 0;
    const auto asked = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answered_ > 0; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&asked), Scaled(absl::Seconds(60))));
  }

 private:
  absl::Mutex mutex_;
  Answer answer_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("no server answers");
  int answered_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(RoutersTest, NamesAreAskedForAgain) {
  FakeInference router;
  // It listens on IPv4 alone: neither address is ready, whatever was found out of them so far.
  router.SetServing(false);
  const std::string port = router.address().substr(router.address().rfind(':'));
  telemetry::Metrics metrics;
  Probe probe(metrics);
  const auto resolver = std::make_shared<ScriptedResolver>();
  Routers known({ServiceAddress::Parse("dns:///routers.example" + port).value()}, nullptr, resolver,
                absl::Milliseconds(5), probe);
  EXPECT_EQ(known.Pick(), nullptr);
  EXPECT_THAT(std::string(known.NoneKnown().message()), HasSubstr("routers.example"));
  resolver->Say(std::vector<std::string>{"127.0.0.1", "127.0.0.1", "::1"});
  const std::string four = "127.0.0.1" + port, six = "[::1]" + port;
  EXPECT_EQ(known.Pick(six)->address, four);
  EXPECT_EQ(known.Pick(four)->address, six);
  std::shared_ptr<Router> held = known.Pick(six);
  resolver->Say(std::vector<std::string>{"::1"});
  EXPECT_EQ(known.Pick(six)->address, six);
  // A call that is under way has its router until it ends, and then it goes.
  const std::weak_ptr<grpc::Channel> channel = held->channel;
  {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    EXPECT_TRUE(held->inference.ListModels(&context, {}, &models).ok());
  }
  // DNS is away: that says nothing of the routers.
  resolver->Say(absl::UnavailableError("no server answers"));
  EXPECT_NE(known.Pick(), nullptr);
  resolver->Say(absl::NotFoundError("no such name"));
  EXPECT_EQ(known.Pick(), nullptr);
  EXPECT_THAT(std::string(known.NoneKnown().message()), HasSubstr("routers.example: no such name"));
  EXPECT_FALSE(channel.expired());
  held = nullptr;
  EXPECT_TRUE(Await([&] { return channel.expired(); }, "the end of a channel"));
}

TEST(RoutersTest, SaysWhatIsNoAddress) {
  const absl::Status refused = Gateway::Start({.routers = {"host:1", "host"}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("dns:///NAME:PORT"));
  EXPECT_TRUE(absl::IsInvalidArgument(Gateway::Start({}).status()));
}

}  // namespace
}  // namespace baton::gateway
