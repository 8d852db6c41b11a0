// The gateway before a scripted router, over real sockets on both sides.
#include "gateway/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/rpc/status.h"
#include "tests/fakes/fake_inference.h"
#include "tests/integration/gateway/ask.h"
#include "tests/patience.h"
#include "tests/unit/common/telemetry/http_peer.h"

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

constexpr const char* kChat = "/v1/chat/completions";

// A router whose answer to everything is this.
FakeInference Ending(const absl::Status& status) {
  return FakeInference({.chat = [status](const v1::ChatRequest&) { return Script{.end = status}; }});
}

// The whole answer to a request whose stream ends the connection, head and all.
std::string Stream(const Gateway& gateway, const std::string& path, const std::string& body,
                   const std::string& more = "") {
  HttpPeer peer(gateway.address());
  EXPECT_TRUE(peer.Send(Post(path, body, "Connection: close\r\n" + more)));
  return peer.ReadToEnd();
}

// An answer that breaks off.
Script LoseTheWorker(const v1::ChatRequest&) {
  Script script = AnswerWith({1, 2, 3}, 4);
  script.steps.resize(2);
  script.end = rpc::WithReason(absl::UnavailableError("the worker is lost"), v1::REASON_WORKER_LOST);
  return script;
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

TEST(GatewayTest, ExplainsHowTokensWereChosen) {
  const auto traced = [] {
    Script script = AnswerWith({7}, 1);
    v1::SamplingTrace& trace = *script.steps[1].event.mutable_delta()->add_sampling();
    trace.set_how(v1::SamplingTrace::HOW_GREEDY);
    trace.set_token_id(7);
    trace.add_likeliest()->set_bytes("t7 ");
    return script;
  };
  FakeInference router({.generate = [&](const v1::GenerateRequest&) { return traced(); },
                        .chat = [&](const v1::ChatRequest&) { return traced(); }});
  const auto gateway = Start(router);
  const std::string chat = R"({"messages": [{"role": "user", "content": "hi"}], "explain": true)";
  const std::string text = R"({"prompt": "hi", "explain": true)";
  for (const auto& [path, body] : {std::pair(kChat, chat), std::pair("/v1/completions", text)}) {
    const HttpAnswer whole = Ask(*gateway, Post(path, body + "}"));
    EXPECT_EQ(whole.status(), 200) << whole.body;
    const Json sampling = Json::parse(whole.body)["choices"][0]["sampling"];
    ASSERT_EQ(sampling.size(), 1u) << whole.body;
    EXPECT_EQ(sampling[0]["how"], "greedy");
    EXPECT_EQ(sampling[0]["likeliest"][0]["token"], "t7 ");
    EXPECT_THAT(Stream(*gateway, path, body + R"(, "stream": true})"),
                HasSubstr("\"sampling\":" + sampling.dump()));
    const HttpAnswer refused = Ask(*gateway, Post(path, body.substr(0, body.size() - 4) + "1}"));
    EXPECT_EQ(refused.status(), 400) << "a number is no flag";
    EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "explain");
  }
  EXPECT_TRUE(router.chat_requests()[0].output().explain());
  EXPECT_TRUE(router.generate_requests()[0].output().explain());
}

TEST(GatewayTest, ResponsesInOnePieceAndStreamed) {
  FakeInference router;
  const auto gateway = Start(router);
  const HttpAnswer whole =
      Ask(*gateway, Post("/v1/responses", R"({"input": "hi", "instructions": "i", "beam": 1})"));
  EXPECT_EQ(whole.status(), 200);
  EXPECT_THAT(whole.head, HasSubstr("x-baton-ignored: beam\r\n"));
  const Json answer = Json::parse(whole.body);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "you said: hi");
  EXPECT_EQ(answer["instructions"], "i");
  EXPECT_EQ(router.chat_requests()[0].conversation().messages(0).role(), "system");
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(
      peer.Send(Post("/v1/responses", R"({"input": "hi", "stream": true})", "Connection: close\r\n")));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr("event: response.created\n"));
  EXPECT_THAT(stream, HasSubstr(R"("delta":"you said: hi")"));
  EXPECT_THAT(stream, HasSubstr("event: response.incomplete\n"));  // the fake ends by length
  const HttpAnswer refused =
      Ask(*gateway, Post("/v1/responses", R"({"input": "hi", "previous_response_id": "resp_1"})"));
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "previous_response_id");
}

TEST(GatewayTest, AResponseThatFailsInTheMiddleSaysSo) {
  FakeInference router({.chat = LoseTheWorker});
  const auto gateway = Start(router);
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(
      peer.Send(Post("/v1/responses", R"({"input": "hi", "stream": true})", "Connection: close\r\n")));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr("event: response.failed\n"));
  EXPECT_EQ(stream.find("response.completed"), std::string::npos);
}

TEST(GatewayTest, APageIsServedToThoseWhoAskForOne) {
  FakeInference router;
  const auto gateway = Start(router, {.page = true});
  const std::pair<const char*, const char*> files[] = {{"/", "text/html; charset=utf-8"},
                                                       {"/page.css", "text/css; charset=utf-8"},
                                                       {"/page.js", "text/javascript; charset=utf-8"}};
  for (const auto& [path, type] : files) {
    const HttpAnswer file = Ask(*gateway, "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(file.status(), 200) << path;
    EXPECT_THAT(file.head, HasSubstr("Content-Type: " + std::string(type) + "\r\n"));
    EXPECT_THAT(file.head, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'; "));
    EXPECT_THAT(file.head, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(file.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
    // Nothing from elsewhere, and no script between the lines, which the policy would not run.
    EXPECT_EQ(file.body.find("http://"), std::string::npos) << path;
    EXPECT_EQ(file.body.find("https://"), std::string::npos) << path;
    EXPECT_EQ(file.body.find("<script>"), std::string::npos) << path;
    EXPECT_EQ(file.body.find("innerHTML"), std::string::npos) << path;
    EXPECT_EQ(file.body.find("localStorage"), std::string::npos) << path;
  }
  EXPECT_EQ(Ask(*gateway, Post("/", "{}")).status(), 404);
  EXPECT_EQ(Ask(*gateway, "GET /page.map HTTP/1.1\r\nHost: h\r\n\r\n").status(), 404);
  EXPECT_EQ(Ask(*Start(router), "GET / HTTP/1.1\r\nHost: h\r\n\r\n").status(), 404) << "nobody asked for it";
}

TEST(GatewayTest, TextsAreJudged) {
  FakeInference router;
  const auto gateway = Start(router);
  const HttpAnswer answer = Ask(*gateway, Post("/v1/moderations", R"({"input": ["good", "bad"]})"));
  EXPECT_EQ(answer.status(), 200);
  const Json json = Json::parse(answer.body);
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("modr-"));
  EXPECT_EQ(json["model"], "fake-guard");
  EXPECT_EQ(json["results"][0]["flagged"], false);
  EXPECT_EQ(json["results"][1]["categories"]["violence"], true);
  EXPECT_EQ(Ask(*gateway, Post("/v1/moderations", "{}")).status(), 400);
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
  FakeInference router({.chat = LoseTheWorker});
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
  ASSERT_TRUE(peer.Readable(Scaled(20'000))) << "no comment";
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
      ASSERT_TRUE(Await([&] { return router.chat_requests().size() >= static_cast<size_t>(i); },
                        "the request at the router"));
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
  ASSERT_TRUE(slow.Readable(Scaled(20'000)));
  // Others are served meanwhile, and the slow one's stream stays open: nobody has taken it all.
  EXPECT_EQ(Ask(*gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
  // As long as another takes for all of it.
  HttpPeer fast(gateway->address());
  ASSERT_TRUE(fast.Send(Post(kChat, kHiStreamed, "Connection: close\r\n")));
  EXPECT_THAT(fast.ReadToEnd(), HasSubstr("data: [DONE]\n\n"));
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

TEST(GatewayTest, AnIdempotencyKeyNamesTheAnswer) {
  FakeInference router;
  const auto gateway = Start(router);
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi, "Idempotency-Key: once\r\n")).status(), 200);
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi)).status(), 200);
  EXPECT_EQ(router.chat_requests().at(0).options().idempotency_key(), "once");
  EXPECT_FALSE(router.chat_requests().at(0).options().not_held());
  // The gateway's own, by which it goes on if it loses the router.
  EXPECT_THAT(router.chat_requests().at(1).options().idempotency_key(), StartsWith("gateway-"));
  EXPECT_TRUE(router.chat_requests().at(1).options().not_held());
  const std::string two = R"({"prompt": ["a", "b"]})";
  EXPECT_EQ(Ask(*gateway, Post("/v1/completions", two, "Idempotency-Key: once\r\n")).status(), 200);
  std::set<std::string> keys;
  for (const v1::GenerateRequest& request : router.generate_requests()) {
    keys.insert(request.options().idempotency_key());
  }
  EXPECT_EQ(keys, (std::set<std::string>{"once/0", "once/1"}));
  for (const std::string& bad : {std::string(121, 'k'), std::string("\xC3\xA9")}) {
    const HttpAnswer refused = Ask(*gateway, Post(kChat, kHi, "Idempotency-Key: " + bad + "\r\n"));
    EXPECT_EQ(refused.status(), 431);
    EXPECT_THAT(refused.body, HasSubstr("idempotency-key: at most 120"));
  }
}

TEST(GatewayTest, AnAnswerTellsItsBuildAndARequestMayAskForOne) {
  FakeInference router;
  const auto gateway = Start(router);
  const std::string build = "fedcba9876543210", header = "x-baton-build: " + build + "\r\n";
  const std::string messages =
      R"({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]})";
  for (const auto& [path, body] :
       {std::pair(kChat, std::string(kHi)), std::pair(kChat, std::string(kHiStreamed)),
        std::pair("/v1/messages", messages)}) {
    const std::string answer = Stream(*gateway, path, body, header);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(answer, HasSubstr(header));
    EXPECT_EQ(router.chat_requests().back().options().build(), build);
    if (path == kChat) {
      EXPECT_THAT(answer, HasSubstr(R"("system_fingerprint":"fedcba9876543210")"));
    }
  }
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi)).status(), 200);
  EXPECT_EQ(router.chat_requests().back().options().build(), "");
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi, "x-baton-build: " + std::string(65, 'a') + "\r\n")).status(), 431);
}

TEST(GatewayTest, AStreamHasProgressAsCommentsIfItIsAskedFor) {
  FakeInference router({.chat = [](const v1::ChatRequest& request) {
    fakes::Script script = fakes::AnswerWith({1}, 7);
    if (!request.output().progress()) return script;
    v1::Progress progress;
    progress.set_state(v1::Progress::STATE_COMPUTING);
    progress.set_prompt_tokens_done(4);
    progress.set_prompt_tokens(7);
    progress.set_predicted_seconds(0.5);
    for (const size_t at : {0, 2}) {
      script.steps.insert(script.steps.begin() + at, fakes::AnswerWith({1}, 7).steps.front());
      *script.steps[at].event.mutable_progress() = progress;
    }
    return script;
  }});
  const auto gateway = Start(router);
  const std::string asks = "x-baton-progress: true\r\n";
  const std::string told = Stream(*gateway, kChat, kHiStreamed, asks);
  const std::string comment =
      ": progress {\"state\":\"computing\",\"requests_ahead\":0,\"prompt_tokens_done\":4,"
      "\"prompt_tokens\":7,\"cached_tokens\":0,\"predicted_seconds\":0.5}\n\n";
  const size_t first = told.find(comment), second = told.find(comment, first + 1);
  EXPECT_NE(second, std::string::npos) << told;
  EXPECT_LT(second, told.find("data: ")) << "before the answer";
  EXPECT_THAT(told, HasSubstr("[DONE]"));
  for (const std::string& answer :
       {Stream(*gateway, kChat, kHiStreamed), Stream(*gateway, kChat, kHi, asks)}) {
    EXPECT_THAT(answer, testing::Not(HasSubstr("progress")));
    EXPECT_FALSE(router.chat_requests().back().output().progress());
  }
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

// Beyond its limit the router would end all calls of the connection, which all clients share.
TEST(GatewayTest, HeadersThatTheRouterWouldRefuseStayHere) {
  FakeInference router;
  const auto gateway = Start(router);
  for (const std::string size : {"1025", "7753", "8300"}) {
    const std::string value(std::stoul(size), 'k');
    for (const std::string name : {"x-api-key", "Authorization"}) {
      const HttpAnswer refused = Ask(*gateway, Post(kChat, kHi, name + ": " + value + "\r\n"));
      EXPECT_EQ(refused.status(), 431) << name << ", " << size;
      EXPECT_THAT(refused.body, HasSubstr(size + " bytes"));
    }
    // A client that traces gets an answer in any case.
    for (const std::string name : {"traceparent", "tracestate"})
      EXPECT_EQ(Ask(*gateway, Post(kChat, kHi, name + ": " + value + "\r\n")).status(), 200) << name;
  }
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi, "x-api-key: " + std::string(1024, 'k') + "\r\n")).status(), 200);
}

// A list of short numbers is larger as a message than as JSON.
TEST(GatewayTest, ARequestThatIsTooLargeForTheRouterIsToldSo) {
  FakeInference router;
  const auto gateway = Start(router);
  std::string numbers = "1E14";
  for (int i = 0; i < 990'000; ++i) numbers += ",1E14";
  const HttpAnswer refused =
      Ask(*gateway,
          Post(kChat, R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function",
        "function": {"name": "f", "parameters": {"enum": [)" +
                          numbers + "]}}}]}"));
  EXPECT_EQ(refused.status(), 413);
  EXPECT_THAT(refused.body, HasSubstr("to the router, which takes 16777216"));
  EXPECT_EQ(Ask(*gateway, Post(kChat, kHi)).status(), 200);
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

// A body with a byte that may stand nowhere in JSON, or bytes that are no UTF-8, put in at every place: each
// is a 400, and the connection serves the next.
TEST(GatewayTest, ABodyThatIsBrokenAnywhereIsRefusedAndNothingElseIs) {
  FakeInference router;
  const auto gateway = Start(router);
  const std::pair<const char*, std::string> bodies[] = {
      {kChat,
       R"({"messages": [{"role": "user", "content": "h\u0041i \u00e9"}], "n": 1, "x": {"y": [1.5e3, null]}})"},
      {"/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]})"},
      {"/v1/responses", R"({"input": "hi", "tools": []})"}};
  const std::string broken[] = {
      std::string(1, '\0'), "\x01", "\xFF", "\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xE2\x82",
      "\xF5\x80\x80\x80",   "\x80"};
  for (const auto& [path, body] : bodies) {
    HttpPeer peer(gateway->address());
    for (size_t at = 0; at <= body.size(); ++at) {
      for (const std::string& bytes : broken) {
        std::string mutated = body;
        mutated.insert(at, bytes);
        ASSERT_TRUE(peer.Send(Post(path, mutated)));
        ASSERT_EQ(peer.Receive().status(), 400) << path << " at " << at;
        if (at == body.size()) continue;
        mutated = body;
        mutated.replace(at, 1, bytes);
        ASSERT_TRUE(peer.Send(Post(path, mutated)));
        ASSERT_EQ(peer.Receive().status(), 400) << path << " at " << at;
      }
    }
    ASSERT_TRUE(peer.Send(Post(path, body)));
    EXPECT_EQ(peer.Receive().status(), 200) << path;
  }
  EXPECT_EQ(router.chat_requests().size(), std::size(bodies));
}

TEST(GatewayTest, RefusalsAtAnthropicsPathsAreInItsForm) {
  FakeInference router;
  GatewayOptions options;
  options.http.max_body_bytes = 100;
  const auto gateway = Start(router, options);
  const std::string head = "POST /v1/messages?beta=true HTTP/1.1\r\nHost: h\r\n";
  const std::tuple<std::string, int, const char*> refused[] = {
      {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "invalid_request_error"},
      {head + "Content-Length: 1000\r\n\r\n", 413, "request_too_large"},
      {head + "x: " + std::string(20000, 'x') + "\r\n\r\n", 431, "invalid_request_error"},
      {Post("/v1/messages", "{"), 400, "invalid_request_error"},
      {Post("/v1/messages/batches", "{}"), 404, "not_found_error"},
      {"GET /v1/messages HTTP/1.1\r\nHost: h\r\n\r\n", 405, "invalid_request_error"}};
  for (const auto& [request, status, type] : refused) {
    const HttpAnswer answer = Ask(*gateway, request);
    EXPECT_EQ(answer.status(), status) << request.substr(0, 80);
    const Json body = Json::parse(answer.body);
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], type);
    EXPECT_THAT(answer.head, HasSubstr("\r\nrequest-id: " + body["request_id"].get<std::string>() + "\r\n"));
  }
  const HttpAnswer other =
      Ask(*gateway, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(other.status(), 413);
  EXPECT_EQ(Json::parse(other.body)["error"]["type"], "invalid_request_error");
}

TEST(GatewayTest, EveryAnswerNamesItsRequestInBothVendorsWays) {
  FakeInference router;
  FakeInference failing = Ending(rpc::WithReason(absl::UnavailableError("no worker"), v1::REASON_NO_WORKER));
  const auto served = Start(router), failed = Start(failing);
  const std::string body = R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 1)";
  for (const char* const path : {kChat, "/v1/messages"}) {
    for (const char* const more : {"", R"(, "stream": true)"}) {
      const std::string asked = Post(path, "{" + body + more + "}", "Connection: close\r\n");
      for (const Gateway* gateway : {served.get(), failed.get()}) {
        HttpPeer peer(gateway->address());
        ASSERT_TRUE(peer.Send(asked));
        const std::string all = peer.ReadToEnd();
        EXPECT_THAT(all, HasSubstr("\r\nx-request-id: ")) << path << more;
        EXPECT_THAT(all, HasSubstr("\r\nrequest-id: ")) << path << more;
      }
      const HttpAnswer error = Ask(*failed, asked);
      const bool anthropic = path == std::string("/v1/messages");
      EXPECT_EQ(error.status(), anthropic ? 529 : 503);
      if (!anthropic) continue;
      const Json told = Json::parse(error.body);
      EXPECT_EQ(told["error"]["type"], "overloaded_error");
      EXPECT_THAT(error.head, HasSubstr("HTTP/1.1 529 Overloaded\r\n"));
      EXPECT_THAT(error.head, HasSubstr("\r\nrequest-id: " + told["request_id"].get<std::string>() + "\r\n"));
    }
  }
  EXPECT_THAT(Ask(*served, "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n").head,
              HasSubstr("\r\nx-request-id: req_"));
}

TEST(GatewayTest, WhatIsNotServedSaysWhyAndPathsAreReadAsTheyWereMeant) {
  FakeInference router({.tokens = [](const v1::Conversation&) { return 7; }, .model = "m"});
  const auto gateway = Start(router);
  const auto told = [&](const std::string& method, const std::string& path, const std::string& more = "") {
    const auto answer = Ask(*gateway, method + " " + path + " HTTP/1.1\r\nHost: h\r\n" + more + "\r\n");
    return std::to_string(answer.status()) + " " +
           Json::parse(answer.body)["error"]["message"].get<std::string>();
  };
  for (const char* const method : {"GET", "DELETE"}) {
    EXPECT_THAT(told(method, "/v1/responses/resp_1"), StartsWith("404 no answer is kept here"));
  }
  EXPECT_THAT(told("GET", "/v1/nothing%2F"), StartsWith("404 nothing is served at /v1/nothing%2F"));
  EXPECT_THAT(told("POST", "/tokenize", "Content-Encoding: gzip\r\nContent-Length: 0\r\n"),
              StartsWith("415 content-encoding: \"gzip\" is not read here"));
  EXPECT_EQ(Json::parse(Ask(*gateway, Post("/tokenize/", kHi)).body)["count"], 7);
  EXPECT_EQ(Json::parse(Ask(*gateway, Post("/%74okenize", kHi)).body)["count"], 7);
  EXPECT_EQ(Json::parse(Ask(*gateway, "GET /v1/models/%6D HTTP/1.1\r\nHost: h\r\n\r\n").body)["id"], "m");
  EXPECT_EQ(Json::parse(Ask(*gateway, "GET /v1/models/m/ HTTP/1.1\r\nHost: h\r\n\r\n").body)["id"], "m");
  EXPECT_EQ(Ask(*gateway, "GET /v1/models/%6 HTTP/1.1\r\nHost: h\r\n\r\n").status(), 404);
  EXPECT_EQ(Ask(*gateway, "GET /v1/models/ HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
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
  auto gateway = Gateway::Start({.routers = {"127.0.0.1:1"}});
  ASSERT_TRUE(gateway.ok());
  EXPECT_EQ(Ask(**gateway, Post(kChat, kHi)).status(), 503);
  EXPECT_EQ(Ask(**gateway, "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n").status(), 503);
  EXPECT_EQ(Ask(**gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
}

TEST(GatewayTest, ItIsReadyWhenTheRouterIs) {
  FakeInference router;
  const auto gateway = Start(router);
  EXPECT_EQ(Ask(*gateway, "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
  router.SetServing(false);
  EXPECT_EQ(Ask(*gateway, "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n").status(), 503);
  EXPECT_EQ(Ask(*gateway, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n").status(), 200);
}

TEST(GatewayTest, OnItsWayOutOpenStreamsEndAndNobodyElseIsLetIn) {
  absl::Notification go_on;
  FakeInference router({.chat = [&](const v1::ChatRequest&) {
    go_on.WaitForNotification();
    return AnswerWith({1, 2}, 4);
  }});
  auto gateway = Start(router, {.head_after = absl::Milliseconds(1)});
  HttpPeer stream(gateway->address()), idle(gateway->address());
  ASSERT_TRUE(idle.Send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_THAT(idle.Receive().head, testing::Not(HasSubstr("Connection: close")));
  ASSERT_TRUE(stream.Send(Post(kChat, kHiStreamed)));
  EXPECT_THAT(stream.Receive(/*head_only=*/true).head, StartsWith("HTTP/1.1 200 "));
  HttpPeer waiting(gateway->address());
  ASSERT_TRUE(waiting.Send(Post(kChat, kHi)));
  Await([&] { return router.chat_requests().size() >= 2; }, "two requests at the router");
  std::thread leaving([&] { gateway->Stop(Scaled(absl::Minutes(1))); });
  // Idle connections are closed, and nobody comes in.
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_FALSE(HttpPeer().TryConnect(gateway->address()));
  go_on.Notify();
  EXPECT_THAT(stream.ReadToEnd(), HasSubstr("data: [DONE]\n\n"));
  const HttpAnswer whole = waiting.Receive();
  EXPECT_EQ(whole.status(), 200);
  EXPECT_THAT(whole.head, HasSubstr("Connection: close\r\n"));
  leaving.join();
}

TEST(GatewayTest, ItTellsOfItsConnectionsAndTheFirstPart) {
  FakeInference router;
  const auto gateway = Start(router, {.http = {.max_connections = 1}});
  const auto page = [&] { return gateway->metrics().Text(); };
  EXPECT_THAT(page(), HasSubstr("baton_gateway_connections_limit 1\n"));
  EXPECT_THAT(page(), HasSubstr("baton_gateway_connections_refused_total 0\n"));
  EXPECT_THAT(page(), HasSubstr("baton_gateway_answers 0\n"));
  HttpPeer one(gateway->address());
  ASSERT_TRUE(one.Send(Post(kChat, kHi)));
  EXPECT_EQ(one.Receive().status(), 200);
  EXPECT_THAT(page(), HasSubstr("baton_gateway_connections 1\n"));
  EXPECT_THAT(page(), HasSubstr("baton_gateway_ttft_seconds_count 1\n"));
  HttpPeer other(gateway->address());
  EXPECT_EQ(one.ReadToEnd(), "") << "it rests, and gives way";
  EXPECT_THAT(page(), HasSubstr("baton_gateway_connections_refused_total 1\n"));
  ASSERT_TRUE(other.Send("nonsense\r\n\r\n"));
  EXPECT_THAT(other.ReadToEnd(), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(page(), HasSubstr("baton_gateway_bad_requests_total 1\n"));
}

TEST(GatewayTest, ItEndsWithAnswersUnderWay) {
  FakeInference router({.chat = [](const v1::ChatRequest&) {
    return AnswerWith({1, 2}, 4, absl::ZeroDuration(), /*gap=*/absl::InfiniteDuration());
  }});
  auto gateway = Start(router);
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Post(kChat, kHiStreamed)));
  ASSERT_TRUE(peer.Readable(Scaled(20'000)));
  gateway.reset();
  EXPECT_TRUE(router.WaitForCancelled(1));
}

}  // namespace
}  // namespace baton::gateway
