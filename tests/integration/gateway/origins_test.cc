#include "gateway/origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/gateway/ask.h"

namespace baton::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

http::Request From(const std::string& origin, const std::string& host, http::Headers more = {}) {
  http::Request request{.method = "POST", .path = "/v1/chat/completions"};
  request.headers = std::move(more);
  if (!origin.empty()) request.headers.emplace_back("origin", origin);
  request.headers.emplace_back("host", host);
  return request;
}

TEST(OriginsTest, APageOfAnotherSiteNeedsAKeyOrTheOperatorsWord) {
  const Origins open({}, "0.0.0.0:8000"),
      named({"https://chat.example.com", "http://Web:3000"}, "0.0.0.0:8000"), all({"*"}, "0.0.0.0:8000");
  struct Case {
    const char* origin;
    const char* host;
    bool open, named;
  };
  const Case cases[] = {
      {"", "gpu:8000", true, true},
      {"http://gpu:8000", "gpu:8000", true, true},
      {"http://GPU", "gpu:80", true, true},
      {"https://gpu:443", "gpu", true, true},
      {"http://gpu:8001", "gpu:8000", false, false},
      {"https://gpu", "gpu:80", false, false},
      {"http://evil.example", "gpu:8000", false, false},
      {"https://chat.example.com", "gpu:8000", false, true},
      {"https://chat.example.com:443", "gpu:8000", false, true},
      {"http://chat.example.com", "gpu:8000", false, false},
      {"https://chat.example.com.evil.example", "gpu:8000", false, false},
      {"http://web:3000", "gpu:8000", false, true},
      {"null", "gpu:8000", false, false},
      {"file://", "gpu:8000", false, false},
      {"://", "", false, false},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(one.origin) + " to " + one.host);
    const http::Request request = From(one.origin, one.host);
    EXPECT_EQ(open.WhyRefused(request).empty(), one.open) << open.WhyRefused(request);
    EXPECT_EQ(named.WhyRefused(request).empty(), one.named) << named.WhyRefused(request);
    EXPECT_THAT(all.WhyRefused(request), IsEmpty());
    for (const std::pair<std::string, std::string> key :
         {std::pair("authorization", "Bearer k"), {"x-api-key", "k"}}) {
      EXPECT_THAT(open.WhyRefused(From(one.origin, one.host, {key})), IsEmpty());
    }
    // A browser adds a password by itself.
    EXPECT_EQ(open.WhyRefused(From(one.origin, one.host, {{"authorization", "Basic dTpw"}})).empty(),
              one.open);
  }
  // A proxy may call the server by another name than the page does.
  EXPECT_THAT(open.WhyRefused(From("https://chat.example.com", "upstream:8000",
                                   {{"x-forwarded-host", "chat.example.com, inner"}})),
              IsEmpty());
  const Origins siteless({"file://", "null", "HTTPS://Chat.example.com"}, "0.0.0.0:8000");
  for (const char* const origin : {"file://", "null", "https://chat.example.com"}) {
    EXPECT_THAT(siteless.WhyRefused(From(origin, "gpu:8000")), IsEmpty()) << origin;
  }
}

TEST(OriginsTest, AServerOfThisMachineIsReachedByItsNamesAlone) {
  for (const char* const listen : {"127.0.0.1:8000", "[::1]:8000", "localhost:8000", "127.0.0.1:0"}) {
    const Origins local({}, listen);
    for (const char* const host : {"localhost:8000", "127.0.0.1:8000", "[::1]:8000", "app.localhost:8000"}) {
      EXPECT_THAT(local.WhyRefused(From(std::string("http://") + host, host)), IsEmpty()) << host;
    }
    // A page that was led here is of the same site as its own server, and can send any header.
    for (const char* const host :
         {"evil.example:8000", "localhost.evil.example:8000", "127.0.0.1.evil.example", ""}) {
      const http::Headers forged = {{"authorization", "Bearer k"}, {"x-forwarded-host", host}};
      EXPECT_THAT(local.WhyRefused(From(std::string("http://") + host, host, forged)),
                  HasSubstr("not this machine's own"));
    }
    EXPECT_THAT(local.WhyRefused(From("", "evil.example:8000")), IsEmpty()) << "no page";
    EXPECT_THAT(local.WhyRefused(From("http://localhost:3000", "127.0.0.1:8000")), IsEmpty())
        << "this machine's page";
    EXPECT_THAT(local.WhyRefused(From("http://evil.example", "localhost:8000")), HasSubstr("without a key"));
    EXPECT_THAT(Origins({"http://evil.example:8000"}, listen)
                    .WhyRefused(From("http://evil.example:8000", "evil.example:8000")),
                IsEmpty());
  }
}

TEST(OriginsTest, WhatIsNoOriginIsRefusedAtStart) {
  for (const char* const origin :
       {"*", "https://a", "http://a.example:8080", "http://[::1]:3000", "app://desktop", "null", "file://"}) {
    EXPECT_TRUE(Origins::Check(origin).ok()) << origin;
  }
  for (const char* const origin :
       {"", "a.example", "https://", "https://a/", "https://a/b", "https://a b", "nil", "https://u@a"}) {
    EXPECT_THAT(std::string(Origins::Check(origin).message()), HasSubstr("not an origin")) << origin;
  }
}

std::string AskedBy(const std::string& origin, const std::string& more = "") {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin + "\r\n" + more +
         "Content-Length: " + std::to_string(std::string(kHi).size()) + "\r\n\r\n" + kHi;
}

TEST(OriginsTest, ABrowserIsToldWhoseAnswersItMayShow) {
  const fakes::FakeInference router;
  const auto gateway = Start(router, {.cors_origins = {"https://chat.example.com"}});
  const telemetry::HttpAnswer theirs = Ask(*gateway, AskedBy("https://chat.example.com"));
  EXPECT_EQ(theirs.status(), 200);
  EXPECT_THAT(theirs.head, HasSubstr("Access-Control-Allow-Origin: https://chat.example.com\r\n"));
  EXPECT_THAT(theirs.head, HasSubstr("Access-Control-Expose-Headers: x-request-id"));
  EXPECT_THAT(theirs.head, HasSubstr("Vary: Origin\r\n"));
  // Errors can be read, too.
  EXPECT_THAT(
      Ask(*gateway, "GET /nothing HTTP/1.1\r\nHost: h\r\nOrigin: https://chat.example.com\r\n\r\n").head,
      HasSubstr("Access-Control-Allow-Origin: https://chat.example.com\r\n"));
  const size_t asked = router.chat_requests().size();
  const telemetry::HttpAnswer others = Ask(*gateway, AskedBy("https://evil.example"));
  EXPECT_EQ(others.status(), 403);
  EXPECT_THAT(others.body, HasSubstr("without a key"));
  EXPECT_THAT(others.head, Not(HasSubstr("Access-Control-Allow-Origin")));
  EXPECT_EQ(router.chat_requests().size(), asked) << "the router has heard of it";
  const telemetry::HttpAnswer nobodys = Ask(*gateway, Post("/v1/chat/completions", kHi));
  EXPECT_EQ(nobodys.status(), 200);
  EXPECT_THAT(nobodys.head, Not(HasSubstr("Access-Control-Allow-Origin")));
  EXPECT_THAT(nobodys.head, HasSubstr("Vary: Origin\r\n"));
}

TEST(OriginsTest, APreflightIsAnsweredForPagesThatMayAsk) {
  const fakes::FakeInference router;
  const auto preflight = [](const std::string& origin) {
    return "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin +
           "\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
           "authorization,content-type\r\n\r\n";
  };
  const auto named = Start(router, {.cors_origins = {"https://chat.example.com"}});
  const telemetry::HttpAnswer theirs = Ask(*named, preflight("https://chat.example.com"));
  EXPECT_EQ(theirs.status(), 200);
  EXPECT_THAT(theirs.head, HasSubstr("Access-Control-Allow-Headers: authorization,content-type\r\n"));
  EXPECT_THAT(theirs.head, HasSubstr("Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"));
  EXPECT_EQ(Ask(*named, preflight("https://evil.example")).status(), 403);
  const auto all = Start(router, {.cors_origins = {"*"}});
  const telemetry::HttpAnswer any = Ask(*all, preflight("null"));
  EXPECT_EQ(any.status(), 200);
  EXPECT_THAT(any.head, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
  EXPECT_THAT(any.head, Not(HasSubstr("Vary")));
  EXPECT_EQ(Ask(*Start(router), preflight("http://h")).status(), 403);
}

}  // namespace
}  // namespace baton::gateway
