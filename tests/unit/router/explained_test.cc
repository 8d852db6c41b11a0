#include "router/api/explained.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "common/rpc/status.h"
#include "router/api/usage.h"
#include "router/dispatch/refusal_status.h"

namespace baton::router {
namespace {

TEST(ExplainedTest, AFieldIsNamed) {
  const absl::Status status = Explained(absl::InvalidArgumentError("sampling.logit_bias[3]: 2 is too much"));
  EXPECT_EQ(rpc::ReasonOf(status), "INVALID_FIELD");
  EXPECT_EQ(rpc::FieldOf(status), "sampling.logit_bias[3]");
  EXPECT_EQ(status.message(), "sampling.logit_bias[3]: 2 is too much");
}

TEST(ExplainedTest, WordsAreNoField) {
  for (const char* const words :
       {"the request is malformed: no", "a prompt of 3 tokens: no", ": x", "no colon", "X.y: no"}) {
    const absl::Status status = Explained(absl::InvalidArgumentError(words));
    EXPECT_EQ(rpc::ReasonOf(status), "INVALID_REQUEST") << words;
    EXPECT_EQ(rpc::FieldOf(status), "") << words;
  }
}

TEST(ExplainedTest, AFieldIsNamedOnlyWhereTheRequestIsAtFault) {
  EXPECT_EQ(rpc::FieldOf(Explained(absl::UnavailableError("moderation: no verdict"))), "");
  EXPECT_EQ(rpc::FieldOf(Explained(absl::PermissionDeniedError("options.priority: -1 is better"))),
            "options.priority");
  const absl::Status long_words =
      Explained(absl::InvalidArgumentError("stop.stop: " + std::string(5000, 'x')));
  EXPECT_EQ(rpc::FieldOf(long_words), "stop.stop");
  EXPECT_LT(rpc::ToGrpc(long_words).error_details().size(), 6000u) << "the words once";
}

TEST(ExplainedTest, EveryCodeHasAReasonAndOneThatIsThereStays) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status = Explained(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    v1::Reason reason;
    EXPECT_TRUE(v1::Reason_Parse("REASON_" + rpc::ReasonOf(status), &reason)) << status;
    EXPECT_NE(reason, v1::REASON_UNSPECIFIED);
  }
  const absl::Status own = rpc::WithReason(absl::UnavailableError("x"), v1::REASON_NO_WORKER, {{"a", "b"}});
  EXPECT_TRUE(rpc::HasReason(Explained(own), v1::REASON_NO_WORKER));
  EXPECT_EQ(rpc::ReasonMetadata(Explained(own), "a"), "b");
  EXPECT_TRUE(Explained(absl::OkStatus()).ok());
}

TEST(ExplainedTest, DetailsTravel) {
  absl::Status status =
      rpc::WithReason(absl::ResourceExhaustedError("full"), v1::REASON_LIMIT_EXCEEDED, {{"limit", "quota"}});
  status = rpc::WithRequestId(
      rpc::WithQuota(rpc::WithRetryDelay(status, absl::Milliseconds(1500)), "tenant", "full"), "7");
  const absl::Status came = rpc::FromGrpc(rpc::ToGrpc(status));
  EXPECT_EQ(came.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(rpc::ReasonOf(came), "LIMIT_EXCEEDED");
  EXPECT_EQ(rpc::ReasonMetadata(came, "limit"), "quota");
  EXPECT_EQ(rpc::ReasonMetadata(came, "none"), "");
  EXPECT_EQ(rpc::QuotaOf(came), "tenant");
  EXPECT_EQ(rpc::RequestIdOf(came), "7");
  EXPECT_EQ(rpc::RetryDelay(came), absl::Milliseconds(1500));
}

TEST(ExplainedTest, RefusalsOfAdmissionHaveTheirReasons) {
  using admission::Reason;
  const auto status = [](Reason reason, absl::Duration retry = absl::Seconds(1)) {
    return StatusOf({.reason = reason, .message = "m", .retry = retry, .whose = "tenant"});
  };
  EXPECT_EQ(rpc::ReasonMetadata(status(Reason::kRequestRate), "limit"), "request_rate");
  EXPECT_EQ(rpc::QuotaOf(status(Reason::kQuota)), "tenant");
  EXPECT_EQ(rpc::QuotaOf(status(Reason::kTotalQueue)), "");
  EXPECT_EQ(rpc::ReasonMetadata(status(Reason::kDisplaced), "cause"), "displaced");
  EXPECT_EQ(rpc::ReasonOf(status(Reason::kTenantQueue)), "QUEUE_FULL");
  EXPECT_EQ(rpc::ReasonOf(status(Reason::kDeadline)), "DEADLINE_UNREACHABLE");
  const absl::Status never = status(Reason::kPromptRate, absl::InfiniteDuration());
  EXPECT_TRUE(absl::IsFailedPrecondition(never)) << never;
  EXPECT_FALSE(rpc::RetryDelay(never).has_value());
  EXPECT_EQ(rpc::ReasonOf(never), "LIMIT_EXCEEDED");
}

TEST(ExplainedTest, ThePageHasEveryReason) {
  std::ifstream file(BATON_SOURCE_DIR "/docs/errors.md");
  std::stringstream page;
  page << file.rdbuf();
  const auto& reasons = *v1::Reason_descriptor();
  for (int i = 1; i < reasons.value_count(); ++i) {
    const std::string name = reasons.value(i)->name().substr(std::string("REASON_").size());
    EXPECT_THAT(page.str(), testing::HasSubstr("| `" + name + "` |"));
  }
}

}  // namespace
}  // namespace baton::router
