// tool_choice.mode MODE_NONE: the token that begins a call is never drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/api/request_preparer.h"
#include "tests/unit/router/shipped_model.h"

namespace baton::router {
namespace {

class NoCallsTest : public testing::Test {
 protected:
  NoCallsTest() {
    request_.mutable_conversation()->add_messages()->set_role("user");
    request_.mutable_conversation()->mutable_messages(0)->set_content("What is the weather?");
    request_.mutable_conversation()->add_tools()->set_name("get_weather");
  }
  v1::SamplingParams Sampling() {
    const auto prepared = preparer_.Prepare(request_, tenant_);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? prepared->request.sampling() : v1::SamplingParams();
  }

  const ModelRegistry models_ = ShippedModel();
  const RequestPreparer preparer_{models_, [] { return uint64_t{1}; }};
  const int32_t call_ =
      (*models_.Find(""))->markers->IdOf((*models_.Find(""))->output.format->call_open)->value();
  const Tenant tenant_{.salt = kv::TenantSalt("tenant")};
  v1::ChatRequest request_;
};

TEST_F(NoCallsTest, TheTokenThatBeginsACallIsForbidden) {
  request_.mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
  EXPECT_EQ(Sampling().logit_bias().at(call_), -100);
  // Whatever the client says of it.
  (*request_.mutable_sampling()->mutable_logit_bias())[call_] = 100;
  (*request_.mutable_sampling()->mutable_logit_bias())[7] = 3;
  EXPECT_EQ(Sampling().logit_bias().at(call_), -100);
  EXPECT_EQ(Sampling().logit_bias().at(7), 3);
}

TEST_F(NoCallsTest, OtherChoicesForbidNothing) {
  EXPECT_TRUE(Sampling().logit_bias().empty());
  for (const auto mode : {v1::ToolChoice::MODE_AUTO, v1::ToolChoice::MODE_REQUIRED}) {
    request_.mutable_tool_choice()->set_mode(mode);
    EXPECT_TRUE(Sampling().logit_bias().empty());
  }
}

}  // namespace
}  // namespace baton::router
