// Several prompts in one request for a completion: one answer of several calls of the router.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gateway/gateway.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

std::string Complete(const Json& body) {
  return Post("/v1/completions", body.dump(), "Connection: close\r\n");
}

std::string NameOf(const v1::GenerateRequest& request) {
  return request.has_text() ? request.text() : absl::StrCat("#", request.token_ids().ids(0));
}

// Each choice of a prompt is its name, a slash and the choice's number; the last one ends first. As many
// prompt tokens as the name has letters, two for each choice.
Script Named(const v1::GenerateRequest& request, absl::Duration wait = absl::ZeroDuration()) {
  const std::string name = NameOf(request);
  Script script;
  const auto add = [&]() -> v1::GenerateResponse& {
    script.steps.push_back({wait, {}});
    wait = absl::ZeroDuration();
    return script.steps.back().event;
  };
  v1::Started& started = *add().mutable_started();
  started.set_request_id("r-" + name);
  started.set_model("fake");
  for (uint32_t choice = std::max(1u, request.options().n()); choice-- > 0;) {
    v1::Delta& delta = *add().mutable_delta();
    delta.set_choice(choice);
    delta.set_text(absl::StrCat(name, "/", choice));
    v1::Finished& finished = *add().mutable_finished();
    finished.set_choice(choice);
    finished.set_reason(v1::FINISH_REASON_LENGTH);
    finished.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(name.size()));
    finished.mutable_usage()->set_completion_tokens(2);
  }
  return script;
}

std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  const std::vector<std::string> lines = absl::StrSplit(stream, '\n');
  for (const std::string& line : lines) {
    if (line.starts_with("data: {")) events.push_back(Json::parse(line.substr(6)));
  }
  return events;
}

constexpr const char* kPrompts = R"({"prompt": ["a", [7, 8], "ccc"], "n": 2})";

TEST(PromptsTest, ChoicesOfEachComeAfterThoseOfTheOneBefore) {
  FakeInference router({.generate = [](const v1::GenerateRequest& request) { return Named(request); }});
  const auto gateway = Start(router);
  const HttpAnswer answer = Ask(*gateway, Complete(Json::parse(kPrompts)));
  ASSERT_EQ(answer.status(), 200) << answer.body;
  const Json whole = Json::parse(answer.body);
  std::vector<std::string> texts;
  for (size_t i = 0; i < whole["choices"].size(); ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["finish_reason"], "length");
    texts.push_back(whole["choices"][i]["text"].get<std::string>());
  }
  EXPECT_THAT(texts, ElementsAre("a/0", "a/1", "#7/0", "#7/1", "ccc/0", "ccc/1"));
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 1 + 2 + 3);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
  EXPECT_EQ(whole["usage"]["total_tokens"], 18);
  // One of the names that the router gave.
  EXPECT_THAT(whole["id"].get<std::string>(), StartsWith("cmpl-r-"));
  EXPECT_THAT(answer.head, HasSubstr("x-request-id: " + whole["id"].get<std::string>().substr(5) + "\r\n"));
  EXPECT_EQ(router.generate_requests().size(), 3u);
}

TEST(PromptsTest, StreamsOfAllAreOne) {
  FakeInference router({.generate = [](const v1::GenerateRequest& request) { return Named(request); }});
  const auto gateway = Start(router);
  Json body = Json::parse(kPrompts);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["prompt"][1] = "bb";
  body["echo"] = true;
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Complete(body)));
  const std::string stream = peer.ReadToEnd();
  std::map<size_t, std::string> texts;
  std::set<std::string> ids;
  std::vector<std::string> reasons;
  const std::vector<Json> events = Events(stream);
  for (const Json& event : events) {
    ids.insert(event["id"].get<std::string>());
    for (const Json& choice : event["choices"]) {
      texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) reasons.push_back(choice["finish_reason"].get<std::string>());
    }
  }
  EXPECT_THAT(texts, ElementsAre(std::pair(0, "aa/0"), std::pair(1, "aa/1"), std::pair(2, "bbbb/0"),
                                 std::pair(3, "bbbb/1"), std::pair(4, "cccccc/0"), std::pair(5, "cccccc/1")));
  EXPECT_EQ(reasons, std::vector<std::string>(6, "length"));
  EXPECT_EQ(ids.size(), 1u) << "one answer has one name";
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
  EXPECT_EQ(stream.find("[DONE]"), stream.rfind("[DONE]"));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
}

TEST(PromptsTest, ManyTakeTurns) {
  FakeInference router({.generate = [](const v1::GenerateRequest& request) {
    return Named(request, /*wait=*/absl::Milliseconds(20));
  }});
  const auto gateway = Start(router);
  Json body = {{"prompt", Json::array()}};
  std::vector<std::string> wanted, texts;
  for (int i = 0; i < 30; ++i) {
    body["prompt"].push_back(absl::StrCat("p", i));
    wanted.push_back(absl::StrCat("p", i, "/0"));
  }
  const Json whole = Json::parse(Ask(*gateway, Complete(body)).body);
  for (const Json& choice : whole["choices"]) texts.push_back(choice["text"].get<std::string>());
  EXPECT_EQ(texts, wanted);
  EXPECT_LE(router.max_open(), 8) << "as eight clients take, and no more";
}

TEST(PromptsTest, TheFirstThatFailsEndsAll) {
  std::atomic<const FakeInference*> others = nullptr;
  FakeInference router({.generate = [&others](const v1::GenerateRequest& request) {
    if (request.text() == "bad") {
      // The router has to know of the others, or there is nothing to cancel there.
      Await([&] { return others.load()->open() >= 2; }, "the two other prompts at the router");
      return Script{.end = absl::InvalidArgumentError("stop: too many")};
    }
    Script script = Named(request);
    script.steps.resize(2);
    script.steps.push_back({absl::InfiniteDuration(), {}});
    return script;
  }});
  others = &router;
  const auto gateway = Start(router);
  Json body = {{"prompt", {"a", "bad", "c"}}};
  const HttpAnswer whole = Ask(*gateway, Complete(body));
  EXPECT_EQ(whole.status(), 400);
  const Json error = Json::parse(whole.body)["error"];
  EXPECT_EQ(error["message"], "prompt[1]: stop: too many");
  EXPECT_EQ(error["param"], "prompt[1]");
  EXPECT_TRUE(router.WaitForCancelled(2));
  body["stream"] = true;
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Complete(body)));
  const std::string stream = peer.ReadToEnd();
  EXPECT_THAT(stream, HasSubstr("prompt[1]: stop: too many"));
  EXPECT_THAT(stream, Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(router.WaitForCancelled(4));
}

TEST(PromptsTest, APromptWithoutAnEndIsAnErrorOfAll) {
  FakeInference router({.generate = [](const v1::GenerateRequest& request) {
    Script script = Named(request);
    if (request.text() == "c") script.steps.resize(1);
    return script;
  }});
  const auto gateway = Start(router);
  EXPECT_EQ(Ask(*gateway, Complete({{"prompt", {"a", "b", "c"}}})).status(), 500);
  EXPECT_EQ(Ask(*gateway, Complete({{"prompt", {"a", "b"}}})).status(), 200);
}

// An answer in one piece is held until it is whole, so there is a most of it: log probabilities of long
// prompts make it large.
TEST(PromptsTest, AnAnswerInOnePieceIsBounded) {
  const FakeInference router({.generate = [](const v1::GenerateRequest&) {
    Script script = AnswerWith({1}, 1);
    v1::GenerateResponse large;
    large.mutable_delta()->set_text(std::string(15 << 20, 'a'));
    script.steps.insert(script.steps.end() - 1, 5, {.wait = {}, .event = large});
    script.steps.back().wait = absl::InfiniteDuration();
    return script;
  }});
  const auto gateway = Start(router);
  const HttpAnswer refused = Ask(*gateway, Complete({{"prompt", "x"}}));
  EXPECT_EQ(refused.status(), 400);
  EXPECT_THAT(refused.body, HasSubstr("ask for it as a stream"));
  EXPECT_TRUE(router.WaitForCancelled(1)) << "nobody wants the rest";
}

// And all of them together count in what clients may have the gateway hold. It is given back.
TEST(PromptsTest, AnswersInOnePieceShareARoom) {
  std::atomic<bool> end = false;
  const FakeInference router({.generate = [&end](const v1::GenerateRequest&) {
    Script script = AnswerWith({1}, 1);
    v1::GenerateResponse large;
    large.mutable_delta()->set_text(std::string(3 << 20, 'a'));
    script.steps.insert(script.steps.end() - 1, {.wait = {}, .event = large});
    if (!end) script.steps.back().wait = absl::InfiniteDuration();
    return script;
  }});
  const auto gateway = Start(router, {.http = {.max_held_bytes = 8 << 20}});
  const std::string ask = Complete({{"prompt", "x"}});
  {
    HttpPeer first(gateway->address()), second(gateway->address());
    ASSERT_TRUE(first.Send(ask));
    ASSERT_TRUE(second.Send(ask));
    ASSERT_TRUE(Await([&] { return gateway->counts().held_bytes > 6 << 20; }, "two answers of 3 MiB"));
    const HttpAnswer refused = Ask(*gateway, ask);
    EXPECT_EQ(refused.status(), 503);
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: 2"));
    EXPECT_THAT(refused.body, HasSubstr("ask for it as a stream"));
    EXPECT_GT(gateway->counts().held_bytes, 6 << 20) << "the others have what they had";
    EXPECT_LT(gateway->counts().held_bytes, 7 << 20);
  }
  ASSERT_TRUE(Await([&] { return gateway->counts().held_bytes == 0; }, "nothing is held"));
  end = true;
  EXPECT_EQ(Ask(*gateway, ask).status(), 200);
}

TEST(PromptsTest, WhoLeavesEndsThoseUnderWayAndNoOtherBegins) {
  FakeInference router({.generate = [](const v1::GenerateRequest& request) {
    return Named(request, absl::InfiniteDuration());
  }});
  const auto gateway = Start(router);
  {
    HttpPeer peer(gateway->address());
    ASSERT_TRUE(peer.Send(Complete({{"prompt", std::vector<std::string>(30, "p")}})));
    ASSERT_TRUE(Await([&] { return router.open() >= 8; }, "eight prompts at the router"));
  }
  EXPECT_TRUE(router.WaitForCancelled(8));
  EXPECT_EQ(router.generate_requests().size(), 8u);
}

// More than the gateway asks for ahead of its client, of each: all that wait go on when it takes something.
TEST(PromptsTest, ASlowClientGetsAllOfThem) {
  constexpr int kPieces = 40;
  constexpr size_t kBytes = 64 << 10;
  FakeInference router({.generate = [](const v1::GenerateRequest& request) {
    Script script = Named(request);
    v1::GenerateResponse piece = script.steps[1].event;
    piece.mutable_delta()->set_text(std::string(kBytes, 'x'));
    script.steps.insert(script.steps.begin() + 1, kPieces, {absl::ZeroDuration(), piece});
    return script;
  }});
  const auto gateway = Start(router);
  HttpPeer peer(gateway->address());
  ASSERT_TRUE(peer.Send(Complete({{"prompt", {"a", "b", "c"}}, {"stream", true}})));
  ASSERT_TRUE(peer.Readable(Scaled(20'000)));
  // Another is served whole meanwhile.
  EXPECT_EQ(Ask(*gateway, Complete({{"prompt", "d"}})).status(), 200);
  const std::string stream = peer.ReadToEnd();
  EXPECT_GE(std::count(stream.begin(), stream.end(), 'x'), static_cast<ptrdiff_t>(3 * kPieces * kBytes));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]\n\n"));
}

}  // namespace
}  // namespace baton::gateway
