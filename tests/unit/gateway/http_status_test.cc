#include "gateway/mapping/http_status.h"

#include <gtest/gtest.h>

#include "common/rpc/status.h"

namespace baton::gateway {
namespace {

TEST(HttpStatusTest, ErrorsOfBothVendors) {
  const absl::Status wrong = absl::InvalidArgumentError("sampling.top_p: 7 is outside (0, 1]");
  EXPECT_EQ(HttpStatusOf(wrong.code()), 400);
  EXPECT_EQ(
      OpenAiError(wrong).dump(),
      R"({"error":{"message":"sampling.top_p: 7 is outside (0, 1]","type":"invalid_request_error","param":"sampling.top_p","code":null}})");
  EXPECT_EQ(
      AnthropicError(wrong, "r1").dump(),
      R"({"type":"error","error":{"type":"invalid_request_error","message":"sampling.top_p: 7 is outside (0, 1]"},"request_id":"r1"})");
}

TEST(HttpStatusTest, ALongPromptHasTheWordsThatClientsLookFor) {
  const absl::Status status =
      rpc::WithReason(absl::InvalidArgumentError("prompt: 9 tokens"), v1::REASON_CONTEXT_LENGTH_EXCEEDED);
  // As it comes over the wire.
  const absl::Status told = rpc::FromGrpc(rpc::ToGrpc(status));
  EXPECT_EQ(OpenAiError(told)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(OpenAiError(told)["error"]["param"], "prompt");
  for (const Json& error : {OpenAiError(told), AnthropicError(told, "")}) {
    EXPECT_EQ(error["error"]["message"], "prompt is too long: prompt: 9 tokens");
  }
}

TEST(HttpStatusTest, AThingThatTheModelCantDoIsTheRequestsMistake) {
  const absl::Status status = rpc::WithReason(absl::UnimplementedError("tool_choice: can't be constrained"),
                                              v1::REASON_NOT_SUPPORTED);
  EXPECT_EQ(HttpStatusOf(status), 400);
  EXPECT_EQ(AnthropicStatusOf(status), 400);
  EXPECT_EQ(OpenAiError(status)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(OpenAiError(status)["error"]["param"], "tool_choice");
}

TEST(HttpStatusTest, EveryCodeHasAStatusAndATypeOfItsOwn) {
  const std::tuple<absl::StatusCode, int, const char*, const char*> codes[] = {
      {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "authentication_error"},
      {absl::StatusCode::kPermissionDenied, 403, "permission_error", "permission_error"},
      {absl::StatusCode::kNotFound, 404, "invalid_request_error", "not_found_error"},
      {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_error"},
      {absl::StatusCode::kCancelled, 499, "invalid_request_error", "invalid_request_error"},
      {absl::StatusCode::kUnimplemented, 501, "server_error", "api_error"},
      {absl::StatusCode::kUnavailable, 503, "server_error", "overloaded_error"},
      {absl::StatusCode::kDeadlineExceeded, 504, "server_error", "timeout_error"},
      {absl::StatusCode::kInternal, 500, "server_error", "api_error"}};
  for (const auto& [code, http, openai, anthropic] : codes) {
    const absl::Status status(code, "why");
    EXPECT_EQ(HttpStatusOf(code), http);
    EXPECT_EQ(OpenAiError(status)["error"]["type"], openai);
    EXPECT_EQ(AnthropicError(status, "")["error"]["type"], anthropic);
  }
}

TEST(HttpStatusTest, WhoHasTooMuchToDoIsToldInEachVendorsWay) {
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kInvalidArgument, absl::StatusCode::kInternal}) {
    const bool overloaded = code == absl::StatusCode::kUnavailable;
    EXPECT_EQ(AnthropicStatusOf(absl::Status(code, "why")), overloaded ? 529 : HttpStatusOf(code));
  }
}

TEST(HttpStatusTest, WhatIsNoRequestIsRefusedInEachVendorsForm) {
  EXPECT_EQ(AnthropicError(absl::InternalError("x"), "").dump(),
            R"({"type":"error","error":{"type":"api_error","message":"x"}})");
  const std::pair<int, const char*> statuses[] = {{400, "invalid_request_error"},
                                                  {404, "not_found_error"},
                                                  {405, "invalid_request_error"},
                                                  {413, "request_too_large"},
                                                  {431, "invalid_request_error"}};
  for (const auto& [http, type] : statuses) {
    EXPECT_EQ(AnthropicRefusal(http, "why", "r").dump(), std::string(R"({"type":"error","error":{"type":")") +
                                                             type +
                                                             R"(","message":"why"},"request_id":"r"})");
    EXPECT_EQ(OpenAiRefusal(http, "why").dump(),
              R"({"error":{"message":"why","type":"invalid_request_error","param":null,"code":null}})");
  }
}

TEST(HttpStatusTest, FieldsAreOnlyWhatLooksLikeOne) {
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("messages[3].content: absent")), "messages[3].content");
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("No field: here")), "");
  EXPECT_EQ(FieldOf(absl::InvalidArgumentError("none")), "");
  EXPECT_EQ(FieldOf(absl::NotFoundError("model: none")), "");
}

TEST(HttpStatusTest, DelaysAreRoundedUp) {
  EXPECT_FALSE(RetryAfterOf(absl::ResourceExhaustedError("x")).has_value());
  const auto retry =
      RetryAfterOf(rpc::WithRetryDelay(absl::ResourceExhaustedError("x"), absl::Milliseconds(1200)));
  ASSERT_TRUE(retry.has_value());
  EXPECT_EQ(retry->seconds, 2);
  EXPECT_EQ(retry->milliseconds, 1200);
}

}  // namespace
}  // namespace baton::gateway
