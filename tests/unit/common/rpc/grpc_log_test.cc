#include "common/rpc/grpc_log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <string>

#include "baton/v1/inference.pb.h"

namespace baton::rpc {
namespace {

// Any client can send such a text: Protobuf's own line about it has neither time nor level.
TEST(GrpcLogTest, ProtobufWritesNothingOfItsOwn) {
  v1::GenerateRequest request;
  const std::string bad("\x12\x02\xff\xfe", 4);  // field 2, a string of two bytes
  ASSERT_EQ(request.GetDescriptor()->FindFieldByNumber(2)->type(),
            google::protobuf::FieldDescriptor::TYPE_STRING);
  RouteGrpcLog();
  testing::internal::CaptureStderr();
  request.ParseFromString(bad);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace baton::rpc
