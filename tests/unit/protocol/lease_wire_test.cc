#include "protocol/fleet/lease_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton::protocol {
namespace {

using ::testing::HasSubstr;

void AddLease(CacheLeases& leases, uint32_t tokens, v1::CacheTtl ttl) {
  fleet::v1::CacheLease& lease = *leases.Add();
  lease.set_tokens(tokens);
  lease.set_ttl(ttl);
}

TEST(LeaseWireTest, FullBlocksAndClasses) {
  CacheLeases leases;
  AddLease(leases, 33, v1::CACHE_TTL_1H);
  AddLease(leases, 100, v1::CACHE_TTL_UNSPECIFIED);
  AddLease(leases, 15, v1::CACHE_TTL_5M);
  const auto read = LeasesFromProto(leases, 100);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u) << "less than a block is nothing";
  EXPECT_EQ((*read)[0].lease_class, kv::LeaseClass::k1h);
  EXPECT_EQ((*read)[0].blocks, 2);
  EXPECT_EQ((*read)[1].lease_class, kv::LeaseClass::k5m);
  EXPECT_EQ((*read)[1].blocks, 6);
}

TEST(LeaseWireTest, WhatAWorkerAsksForIsReadAsIt) {
  const std::vector<kv::PrefixLease> leases = {{.lease_class = kv::LeaseClass::k1h, .blocks = 2},
                                               {.lease_class = kv::LeaseClass::k5m, .blocks = 6}};
  CacheLeases asked;
  ToProto(leases, &asked);
  EXPECT_EQ(asked[0].tokens(), 2u * kBlockTokens);
  const auto read = LeasesFromProto(asked, 6 * kBlockTokens);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), leases.size());
  for (size_t i = 0; i < leases.size(); ++i) {
    EXPECT_EQ((*read)[i].lease_class, leases[i].lease_class);
    EXPECT_EQ((*read)[i].blocks, leases[i].blocks);
  }
}

TEST(LeaseWireTest, RefusesWhatNoRouterSends) {
  const auto complaint = [](const CacheLeases& leases) {
    return std::string(LeasesFromProto(leases, 100).status().message());
  };
  CacheLeases leases;
  AddLease(leases, 101, v1::CACHE_TTL_5M);
  EXPECT_THAT(complaint(leases), HasSubstr("leases[0].tokens: 101 of a prompt that has 100"));
  leases[0].set_tokens(100);
  leases[0].set_ttl(static_cast<v1::CacheTtl>(7));
  EXPECT_THAT(complaint(leases), HasSubstr("leases[0].ttl: 7"));
  leases[0].set_ttl(v1::CACHE_TTL_5M);
  EXPECT_EQ(complaint(leases), "");
  for (int i = 0; i < kMaxCacheLeases; ++i) AddLease(leases, 16, v1::CACHE_TTL_5M);
  EXPECT_THAT(complaint(leases), HasSubstr("leases: 9, at most 8"));
}

TEST(LeaseWireTest, WhatIsLeftOfHeldLeasesComesThroughInWholeSeconds) {
  HeldLeases told;
  ToProto({{.lease_class = kv::LeaseClass::k1h, .blocks = 3, .left = absl::Milliseconds(1800900)},
           {.lease_class = kv::LeaseClass::k5m, .blocks = 7, .left = absl::Minutes(5)},
           {.lease_class = kv::LeaseClass::k5m, .blocks = 8, .left = absl::Milliseconds(900)}},
          &told);
  const auto read = HeldLeasesFromProto(told, 8);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*read,
              ::testing::ElementsAre(
                  kv::HeldLease{.lease_class = kv::LeaseClass::k1h, .blocks = 3, .left = absl::Minutes(30)},
                  kv::HeldLease{.lease_class = kv::LeaseClass::k5m, .blocks = 7, .left = absl::Minutes(5)}));
}

TEST(LeaseWireTest, RefusesHeldLeasesThatNoWorkerTells) {
  HeldLeases told;
  const auto complaint = [&] { return std::string(HeldLeasesFromProto(told, 8).status().message()); };
  fleet::v1::HeldLease& lease = *told.Add();
  lease.set_ttl(v1::CACHE_TTL_5M);
  lease.set_seconds_left(300);
  EXPECT_THAT(complaint(), HasSubstr("a lease of 0 blocks of the 8"));
  lease.set_blocks(9);
  EXPECT_THAT(complaint(), HasSubstr("a lease of 9 blocks of the 8"));
  lease.set_blocks(8);
  EXPECT_EQ(complaint(), "");
  lease.set_seconds_left(301);
  EXPECT_THAT(complaint(), HasSubstr("301 s left, longer than its TTL of 300 s"));
  // A newer worker's class.
  lease.set_ttl(static_cast<v1::CacheTtl>(7));
  EXPECT_EQ(complaint(), "");
  EXPECT_TRUE(HeldLeasesFromProto(told, 8)->empty());
  lease.set_ttl(v1::CACHE_TTL_1H);
  const fleet::v1::HeldLease copy = lease;
  for (int i = 0; i < kMaxCacheLeases; ++i) *told.Add() = copy;
  EXPECT_THAT(complaint(), HasSubstr("9 leases, more than 8"));
}

}  // namespace
}  // namespace baton::protocol
