// Names and addresses of peers.
#include "decode_service/peer_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::decode_service {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(PeerAddressesTest, AnAddressIsItself) {
  EXPECT_THAT(PeerAddresses("10.0.0.1:8470"), ElementsAre("10.0.0.1:8470"));
  EXPECT_THAT(PeerAddresses("prefill-0.prefill:8470"), ElementsAre("prefill-0.prefill:8470"));
}

TEST(PeerAddressesTest, ANameStandsForEachOfItsAddresses) {
  EXPECT_THAT(PeerAddresses("dns:///127.0.0.1:8470"), ElementsAre("127.0.0.1:8470"));
  EXPECT_THAT(PeerAddresses("dns:///localhost:8470"),
              testing::AnyOf(Contains("127.0.0.1:8470"), Contains("[::1]:8470")));
}

TEST(PeerAddressesTest, WhatCantBeResolvedStaysForTheCallToSayWhy) {
  EXPECT_THAT(PeerAddresses("dns:///nowhere.invalid:8470"), ElementsAre("dns:///nowhere.invalid:8470"));
  EXPECT_THAT(PeerAddresses("dns:///8470"), ElementsAre("dns:///8470"));
}

}  // namespace
}  // namespace baton::decode_service
