#include "router/api/wire.h"

#include <gtest/gtest.h>

#include "baton/v1/inference.pb.h"
#include "common/base/random.h"
#include "tests/seed.h"

namespace baton::router {
namespace {

grpc::ByteBuffer Buffer(const std::string& bytes, size_t cut) {
  std::vector<grpc::Slice> slices = {grpc::Slice(bytes.substr(0, cut)), grpc::Slice(bytes.substr(cut))};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status Parse(const google::protobuf::Message& message, google::protobuf::Message* into) {
  const std::string bytes = message.SerializePartialAsString();
  return ParseMessage(Buffer(bytes, bytes.size() / 2), into);
}

TEST(ParseMessageTest, ReadsWhatWasWritten) {
  v1::GenerateRequest request;
  request.set_text("grüße 你好");
  v1::GenerateRequest read;
  ASSERT_TRUE(ParseMessage(SerializeMessage(request), &read).ok());
  EXPECT_EQ(read.text(), request.text());
  ASSERT_TRUE(Parse(request, &read).ok());
  EXPECT_EQ(read.text(), request.text());
  EXPECT_TRUE(ParseMessage(grpc::ByteBuffer(), &read).ok()) << "no bytes are an empty message";
}

// The bad string lies a hundred messages deep: no level has a copy of it, or 64 MiB here would be gigabytes.
TEST(ParseMessageTest, NamesAFieldDeepDown) {
  google::protobuf::Value value;
  value.set_string_value(std::string(1 << 20, 'x') + "\xFF");
  for (int i = 0; i < 40; ++i) {
    google::protobuf::Value list;
    *list.mutable_list_value()->add_values() = std::move(value);
    value = std::move(list);
  }
  v1::ChatRequest chat;
  (*chat.mutable_conversation()->mutable_template_arguments()->mutable_fields())["a"] = std::move(value);
  v1::ChatRequest read;
  const std::string words(Parse(chat, &read).message());
  EXPECT_EQ(words.find("conversation.template_arguments.fields[0].value.list_value.values[0]."), 0u) << words;
  EXPECT_EQ(words.substr(words.rfind('.')), ".string_value: not UTF-8 at byte 1048576");
}

TEST(ParseMessageTest, NamesTheFieldThatIsNotUtf8) {
  v1::GenerateRequest generate;
  generate.set_text("ab\xFF");
  v1::GenerateRequest read;
  const absl::Status text = Parse(generate, &read);
  EXPECT_TRUE(absl::IsInvalidArgument(text));
  EXPECT_EQ(text.message(), "text: not UTF-8 at byte 2");

  v1::ChatRequest chat;
  chat.mutable_conversation()->add_messages()->set_content("fine");
  chat.mutable_conversation()->add_messages()->set_content("\xC3\x28");
  v1::ChatRequest read_chat;
  EXPECT_EQ(Parse(chat, &read_chat).message(), "conversation.messages[1].content: not UTF-8 at byte 0");
}

TEST(ParseMessageTest, RefusesBytesThatAreNoMessage) {
  v1::GenerateRequest read;
  const absl::Status status = ParseMessage(Buffer("\x12\x7F", 1), &read);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("baton.v1.GenerateRequest"), absl::string_view::npos) << status;
}

TEST(ParseMessageTest, SurvivesRandomBytes) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  v1::ChatRequest chat;
  chat.mutable_conversation()->add_messages()->set_content("some text");
  (*chat.mutable_conversation()->mutable_template_arguments()->mutable_fields())["k"].set_string_value("v");
  const std::string good = chat.SerializeAsString();
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 3; ++k) {
      const auto at = static_cast<size_t>(UniformAt(seed, draws++) * static_cast<double>(bytes.size()));
      bytes[at] = static_cast<char>(static_cast<int>(UniformAt(seed, draws++) * 256));
    }
    v1::ChatRequest read;
    const absl::Status status = ParseMessage(Buffer(bytes, 4), &read);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
}

TEST(FirstInvalidUtf8Test, FollowsTheTable) {
  for (const char* good :
       {"", "abc", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_FALSE(FirstInvalidUtf8(good).has_value()) << good;
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3"}) {
    EXPECT_EQ(FirstInvalidUtf8(std::string("ok") + bad), std::optional<size_t>(2))
        << testing::PrintToString(bad);
  }
}

}  // namespace
}  // namespace baton::router
