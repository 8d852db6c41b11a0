#include "router/vllm/running_requests.h"

#include <gtest/gtest.h>

namespace baton::router::vllm {
namespace {

using admission::TenantId;

TEST(RunningRequestsTest, ATenantEndsItsOwnByTheirNameAndAllOfThem) {
  RunningRequests running;
  int mine = 0, twin = 0, others = 0;
  const auto one = running.Add(TenantId{1}, "a", [&] { ++mine; });
  const auto two = running.Add(TenantId{1}, "a", [&] { ++twin; });
  const auto three = running.Add(TenantId{2}, "a", [&] { ++others; });
  running.Abort(TenantId{1}, "a");
  running.Abort(TenantId{1}, "b");
  EXPECT_EQ(mine, 1);
  EXPECT_EQ(twin, 1);
  EXPECT_EQ(others, 0);
}

TEST(RunningRequestsTest, WhatHasEndedIsNotEndedAgain) {
  RunningRequests running;
  int ends = 0;
  auto request = running.Add(TenantId{1}, "a", [&] { ++ends; });
  request.reset();
  running.Abort(TenantId{1}, "a");
  EXPECT_EQ(ends, 0);
}

TEST(RunningRequestsTest, ARequestMayGoWhileItIsEnded) {
  RunningRequests running;
  RunningRequests::Guard request;
  request = running.Add(TenantId{1}, "a", [&] { request.reset(); });
  running.Abort(TenantId{1}, "a");
  EXPECT_EQ(request, nullptr);
}

}  // namespace
}  // namespace baton::router::vllm
