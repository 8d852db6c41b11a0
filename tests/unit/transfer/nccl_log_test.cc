#include "transfer/nccl/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace baton::transfer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Lines as NCCL 2.28 and 2.30 write them.
constexpr char kPrefix[] = "worker-0:17:42 [0] NCCL INFO ";

TEST(NcclLogTest, AChannelsLineTellsWhatCarriesIt) {
  const auto of = [](std::string_view text) { return NcclLog::TransportOf(kPrefix + std::string(text)); };
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"), "P2P/CUMEM");
  EXPECT_EQ(of("Channel 01/1 : 1[1] -> 0[0] via P2P/IPC"), "P2P/IPC");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] via P2P/direct pointer"), "P2P/direct pointer");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/3/GDRDMA"), "NET/IB/GDRDMA");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/3(1)/GDRDMA(PCI)/Shared"), "NET/IB/GDRDMA");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"), "NET/IB");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"), "NET/Socket");
  EXPECT_EQ(of("Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/2/GDRDMA"),
            "NET/AWS Libfabric/GDRDMA");
  EXPECT_EQ(of("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"), "SHM");
  EXPECT_EQ(of("Channel 00/02 :    0   1"), "");
  EXPECT_EQ(of("Connected all rings via magic"), "");
  EXPECT_EQ(NcclLog::TransportOf(""), "");
}

TEST(NcclLogTest, TcpIsNotRdmaAndRdmaIsNotP2p) {
  for (const char* transport : {"P2P/CUMEM", "NET/IB/GDRDMA", "NET/Socket", "SHM"}) {
    EXPECT_TRUE(NcclLog::Allowed("any", transport));
  }
  EXPECT_TRUE(NcclLog::Allowed("p2p", "P2P/CUMEM"));
  EXPECT_FALSE(NcclLog::Allowed("p2p", "NET/IB/GDRDMA"));
  EXPECT_FALSE(NcclLog::Allowed("p2p", "SHM"));
  EXPECT_TRUE(NcclLog::Allowed("rdma", "P2P/IPC"));
  EXPECT_TRUE(NcclLog::Allowed("rdma", "NET/IB"));
  EXPECT_TRUE(NcclLog::Allowed("rdma", "NET/AWS Libfabric/GDRDMA"));
  EXPECT_FALSE(NcclLog::Allowed("rdma", "NET/Socket"));
  EXPECT_FALSE(NcclLog::Allowed("rdma", "SHM"));
}

class NcclLogFileTest : public testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) unsetenv(name);
  }
};

// The file is opened by name, as NCCL does it.
TEST_F(NcclLogFileTest, WhatIsWrittenToTheFileIsReadOnceAndLinesMayComeInParts) {
  const auto log = NcclLog::Open();
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
  std::FILE* const file = std::fopen(std::getenv("NCCL_DEBUG_FILE"), "w");
  ASSERT_NE(file, nullptr);
  std::setbuf(file, nullptr);
  std::fputs("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/So", file);
  EXPECT_THAT((*log)->Read(), IsEmpty());
  EXPECT_THAT((*log)->channels(), IsEmpty());
  std::fputs("cket/0\nb NCCL WARN Call to connect failed\n", file);
  EXPECT_THAT((*log)->Read(), ElementsAre("b NCCL WARN Call to connect failed"));
  EXPECT_THAT((*log)->channels(), ElementsAre(Pair("NET/Socket", 1)));
  EXPECT_THAT((*log)->Read(), IsEmpty());
  for (int i = 0; i < 2000; ++i) std::fputs("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", file);
  EXPECT_THAT((*log)->Read(), IsEmpty());
  EXPECT_THAT((*log)->channels(), ElementsAre(Pair("NET/Socket", 1), Pair("P2P/CUMEM", 2000)));
  std::fclose(file);
}

TEST_F(NcclLogFileTest, WhoAskedForNcclsLogGetsAllOfIt) {
  setenv("NCCL_DEBUG", "info", 1);
  setenv("NCCL_DEBUG_SUBSYS", "GRAPH", 1);
  const auto log = NcclLog::Open();
  ASSERT_TRUE(log.ok());
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "info");
  EXPECT_STREQ(std::getenv("NCCL_DEBUG_SUBSYS"), "GRAPH,INIT,NET,P2P,SHM");
  std::FILE* const file = std::fopen(std::getenv("NCCL_DEBUG_FILE"), "w");
  std::fputs("x NCCL INFO Bootstrap\n", file);
  std::fclose(file);
  EXPECT_THAT((*log)->Read(), ElementsAre("x NCCL INFO Bootstrap"));
}

TEST_F(NcclLogFileTest, AFileOfTheOperatorsIsLeftAlone) {
  setenv("NCCL_DEBUG_FILE", "/tmp/nccl.%p", 1);
  EXPECT_EQ(NcclLog::Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_STREQ(std::getenv("NCCL_DEBUG_FILE"), "/tmp/nccl.%p");
}

}  // namespace
}  // namespace baton::transfer
