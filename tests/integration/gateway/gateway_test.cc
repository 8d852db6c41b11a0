// The gateway before a scripted router, over real sockets on both sides.
#include "gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/rpc/status.h"
#include "tests/fakes/fake_inference.h"
#include "tests/unit/telemetry/http_peer.h"

namespace baton::gateway {
namespace {

using fakes::AnswerWith;
using fakes::FakeInference;
using fakes::Script;
using telemetry::HttpAnswer;
using telemetry::HttpPeer;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

std::unique_ptr<Gateway> Start(const FakeInference& router, GatewayOptions options = {}) {
  options.router = router.address();
  auto gateway = Gateway::Start(options);
  EXPECT_TRUE(gateway.ok()) << gateway.status();
  return *std::move(gateway);
}

std::string Post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

HttpAnswer Ask(const Gateway& gateway, const std::string& request) {
  HttpPeer peer(gateway.address());
  EXPECT_TRUE(peer.Send(request));
  return peer.Receive();
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kHi = R"({"messages": [{"role": "user", "content": "hi"}]})";
constexpr const char* kHiStreamed = R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";

// A router whose answer to everything is this.
FakeInference Ending(const absl::Status& status) {
  return FakeInference({.chat = [status](const v1::ChatRequest&) { return Script{.end = status}; }});
}

TEST(GatewayTest, AnswersInOnePieceAndStreamed) {
  FakeInference router;
  const auto gateway = Start(router);
  const HttpAnswer whole = Ask(*gateway, Post(kChat, kHi));
  EXPECT_EQ(whole.status(), 200);
  EXPECT_EQ(Json::parse(whole.body)["choices"][0]["message"]["content"], "you said: hi");
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Post(kChat, kHiStreamed, "Connection: close\r\n")));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(stream, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(stream, HasSubstr(R"("content":"you said: hi")"));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
  EXPECT_THAT(stream, testing::EndsWith("0\r\n\r\n"));
  EXPECT_EQ(router.chat_requests().size(), 2u);
}

TEST(GatewayTest, ErrorsBeforeTheAnswerHaveAStatusAlsoForStreams) {
  FakeInference router =
      Ending(rpc::WithRetryDelay(absl::ResourceExhaustedError("too many"), absl::Milliseconds(1500)));
  const auto gateway = Start(router);
  for (const char* const body : {kHi, kHiStreamed}) {
    const HttpAnswer refused = Ask(*gateway, Post(kChat, body));
    EXPECT_EQ(refused.status(), 429);
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: 2\r\n"));
    EXPECT_THAT(refused.head, HasSubstr("retry-after-ms: 1500\r\n"));
    EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "rate_limit_exceeded");
  }
  const HttpAnswer other =
      Ask(*gateway,
          Post("/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]})"));
  EXPECT_EQ(other.status(), 429);
  EXPECT_EQ(Json::parse(other.body)["error"]["type"], "rate_limit_error");
}

TEST(GatewayTest, AnErrorInTheMiddleIsAnEventAndNoEnd) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    Script script = AnswerWith({1, 2, 3}, 4);
    script.steps.resize(2);
    script.end = absl::UnavailableError("the worker is lost");
    return script;
  }});
  const auto gateway = Start(router);
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Post(kChat, kHiStreamed, "Connection: close\r\n")));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr(R"(data: {"error":{"message":"the worker is lost")"));
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
  EXPECT_EQ(stream.find(R"("finish_reason":"stop")"), std::string::npos);
  // In one piece it is an error as a whole.
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi)).status(), 503);
}

TEST(GatewayTest, AStreamThatTheRouterEndsTooSoonIsAnError) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    Script script = AnswerWith({1, 2, 3}, 4);
    script.steps.pop_back();
    return script;
  }});
  const auto gateway = Start(router);
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi)).status(), 500);
}

TEST(GatewayTest, WhoWaitsGetsAHeadAndComments) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return AnswerWith({1}, 4, /*first=*/absl::InfiniteDuration());
  }});
  const auto gateway =
      Start(router, {.comment_after = absl::Milliseconds(20), .head_after = absl::Milliseconds(1)});
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Post(kChat, kHiStreamed)));
  EXPECT_THAT(peer.Receive(/*head_only=*/true).head, StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(peer.Readable(20000)) << "no comment";
}

TEST(GatewayTest, WhoLeavesWhileThePromptWaitsCancelsTheCall) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return Script{.steps = {{.wait = absl::InfiniteDuration(), .event = {}}}};
  }});
  const auto gateway = Start(router);
  for (int i = 1; i <= 2; ++i) {
    {
      HttpPeer peer(gateway->address());
      ASSERT_TRUE(peer.Send(Post(kChat, i == 1 ? kHi : kHiStreamed)));
      while (router.chat_requests().size() < static_cast<size_t>(i)) {
      }
    }
    EXPECT_TRUE(router.WaitForCancelled(i));
  }
}

TEST(GatewayTest, ASlowClientSlowsTheRouterDown) {
  // Some 64 MiB, in pieces: more than the buffers of two connections.
  constexpr int kPieces = 512;
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    Script script = AnswerWith({1}, 4);
    v1::GenerateResponse delta = script.steps[1].event;
    delta.mutable_delta()->set_text(std::string(size_t{128} << 10, 'a'));
    script.steps.insert(script.steps.begin() + 1, kPieces, {absl::ZeroDuration(), delta});
    return script;
  }});
  const auto gateway = Start(router);
  HttpPeer slow(gateway->address());
  ASSERT_TRUE(slow.Send(Post(kChat, kHiStreamed, "Connection: close\r\n")));
  ASSERT_TRUE(slow.Readable(20000));
  // Others are served meanwhile, and the slow one's stream stays open: nobody has taken it all.
  EXPECT_EQ(Ask(*gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
  EXPECT_EQ(router.open(), 1);
  const std::string stream = slow.ReadToEnd();
  EXPECT_GT(stream.size(), size_t{kPieces} << 17);
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
}

TEST(GatewayTest, KeysAndTraceContextsArePassedOnAndIgnoredMembersNamed) {
  FakeInference router;
  const auto gateway = Start(router);
  const HttpAnswer answer =
      Ask(*gateway,
          Post(kChat, R"({"messages": [{"role": "user", "content": "hi"}], "beam_width": 2, "a\r\nb": 1})",
               "Authorization: Bearer key\r\nx-api-key: key\r\ntraceparent: "
               "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"));
  EXPECT_EQ(answer.status(), 200);
  EXPECT_THAT(answer.head, HasSubstr("x-baton-ignored: beam_width, a??b\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("x-request-id: "));
}

TEST(GatewayTest, HeadersThatNoMetadataCanHoldEndNothing) {
  FakeInference router;
  const auto gateway = Start(router);
  for (const std::string value : {"Bearer \xC3\xA9", "\xFF\xFE", "a\tb"}) {
    EXPECT_EQ(
        Ask(*gateway, Post(kChat, kHi, "Authorization: " + value + "\r\ntraceparent: " + value + "\r\n"))
            .status(),
        200);
  }
  EXPECT_EQ(Ask(*gateway, Post("/tokenize", kHi, "x-api-key: \xC3\xA9\r\n")).status(), 200);
}

TEST(GatewayTest, WhatIsNoRequestIsRefusedInTheVendorsWords) {
  FakeInference router;
  const auto gateway = Start(router);
  EXPECT_EQ(Ask(*gateway, Post(kChat, "{")).status(), 400);
  EXPECT_EQ(Ask(*gateway, Post(kChat, "")).status(), 400);
  EXPECT_EQ(Ask(*gateway, Post(kChat, "{\"messages\": \"\xFF\"}")).status(), 400);
  EXPECT_EQ(Ask(*gateway, Post(kChat, std::string(100, '['))).status(), 400);
  EXPECT_EQ(Ask(*gateway, Post("/nothing", "{}")).status(), 404);
  const HttpAnswer method = Ask(*gateway, "GET /v1/messages HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(method.status(), 405);
  EXPECT_THAT(method.head, HasSubstr("Allow: POST\r\n"));
  EXPECT_EQ(Json::parse(Ask(*gateway, Post("/v1/messages", "{}")).body)["type"], "error");
  EXPECT_TRUE(router.chat_requests().empty());
}

TEST(GatewayTest, EveryPrefixOfABodyIsRefusedOrServed) {
  FakeInference router;
  const auto gateway = Start(router);
  const std::string body =
      R"({"messages": [{"role": "user", "content": "h\u0041i"}], "n": 1, "stop": ["x"]})";
  HttpPeer peer(gateway->address());
  for (size_t size = 0; size <= body.size(); ++size) {
    ASSERT_TRUE(peer.Send(Post(kChat, body.substr(0, size))));
    EXPECT_EQ(peer.Receive().status(), size == body.size() ? 200 : 400) << size;
  }
}

TEST(GatewayTest, ModelsTokensAndTheStateOfThings) {
  FakeInference router({.tokens = [](const v1::Conversation&) { return 7; }, .model = "m"});
  const auto gateway = Start(router);
  EXPECT_EQ(Json::parse(Ask(*gateway, "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n").body)["data"][0]["id"],
            "m");
  EXPECT_EQ(Json::parse(Ask(*gateway, "GET /v1/models/m HTTP/1.1\r\nHost: h\r\n\r\n").body)["id"], "m");
  EXPECT_EQ(Ask(*gateway, "GET /v1/models/n HTTP/1.1\r\nHost: h\r\n\r\n").status(), 404);
  EXPECT_EQ(Json::parse(Ask(*gateway, Post("/v1/messages/count_tokens", kHi)).body)["input_tokens"], 7);
  EXPECT_EQ(Json::parse(Ask(*gateway, Post("/tokenize", kHi)).body)["count"], 7);
  EXPECT_EQ(Ask(*gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
  EXPECT_TRUE(
      Json::parse(Ask(*gateway, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n").body).contains("version"));
  EXPECT_THAT(gateway->metrics().Text(),
              HasSubstr(R"(baton_gateway_requests_total{endpoint="/v1/models",status="404"} 1)"));
}

TEST(GatewayTest, WithoutARouterItSaysSoAndLives) {
  auto gateway = Gateway::Start({.router = "127.0.0.1:1"});
  ASSERT_TRUE(gateway.ok());
  EXPECT_EQ(Ask(**gateway, Post(kChat, kHi)).status(), 503);
  EXPECT_EQ(Ask(**gateway, "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n").status(), 503);
  EXPECT_EQ(Ask(**gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
}

TEST(GatewayTest, ItEndsWithAnswersUnderWay) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return AnswerWith({1, 2}, 4, absl::ZeroDuration(), /*gap=*/absl::InfiniteDuration());
  }});
  auto gateway = Start(router);
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Post(kChat, kHiStreamed)));
  ASSERT_TRUE(peer.Readable(20000));
  gateway.reset();
  EXPECT_TRUE(router.WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::gateway
