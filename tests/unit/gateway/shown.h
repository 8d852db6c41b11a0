// Messages as text, for tests of the mappings.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>

namespace baton::gateway {

// The request as protobuf's JSON, so that a test sees all of it.
inline std::string Shown(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  return text;
}

}  // namespace baton::gateway
