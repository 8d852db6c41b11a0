// The code takes for granted of the public messages that those of Chat and of Generate can be read as each
// other.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "protocol/client/answer_event.h"

namespace baton {
namespace {

std::vector<std::string> FieldsOf(const google::protobuf::Descriptor& type) {
  std::vector<std::string> fields;
  for (int i = 0; i < type.field_count(); ++i) fields.push_back(type.field(i)->DebugString());
  return fields;
}

TEST(PublicApiTest, AllStreamsOfAnswersHaveTheSameFields) {
  EXPECT_THAT(FieldsOf(*v1::ChatResponse::descriptor()), testing::SizeIs(4));
  EXPECT_EQ(FieldsOf(*v1::ChatResponse::descriptor()), FieldsOf(*v1::GenerateResponse::descriptor()));
  EXPECT_EQ(FieldsOf(*v1::ResumeResponse::descriptor()), FieldsOf(*v1::GenerateResponse::descriptor()));
}

TEST(PublicApiTest, AndSoHaveTheirUnaryAnswers) {
  EXPECT_THAT(FieldsOf(*v1::ChatUnaryResponse::descriptor()), testing::SizeIs(2));
  EXPECT_EQ(FieldsOf(*v1::ChatUnaryResponse::descriptor()),
            FieldsOf(*v1::GenerateUnaryResponse::descriptor()));
}

TEST(PublicApiTest, AnEventIsTheSameWhoeverSendsIt) {
  std::vector<v1::ChatResponse> events(5);
  events[0].mutable_started()->set_request_id("r");
  events[1].mutable_delta()->set_text("words");
  events[2].mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  events[3].mutable_progress()->set_prompt_tokens(7);
  for (const v1::ChatResponse& event : events) {
    const v1::GenerateResponse same = protocol::AnswerEvent(event);
    EXPECT_EQ(same.SerializeAsString(), event.SerializeAsString());
    EXPECT_EQ(protocol::AnswerEvent(same).SerializeAsString(), event.SerializeAsString());
  }
}

}  // namespace
}  // namespace baton
