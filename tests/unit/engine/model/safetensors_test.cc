#include "engine/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::vector<StoredTensor>> Parse(const std::string& bytes) {
  return ParseSafetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

std::string Refusal(const std::string& bytes) { return std::string(Parse(bytes).status().message()); }

std::string MessageFor(const std::string& header, std::string_view data) {
  const std::string message = Refusal(SafetensorsBytes(header, data));
  EXPECT_FALSE(message.empty());
  return message;
}

// One tensor of two values.
std::string One(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("late":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
                             R"("scalar":{"dtype":"F16","shape":[],"data_offsets":[2,4]},)"
                             R"("empty":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                             R"("early":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}  )";
  const std::string bytes = SafetensorsBytes(header, "abcdefghijkl");
  const auto tensors = Parse(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  EXPECT_EQ((*tensors)[0].name, "early");
  EXPECT_EQ((*tensors)[0].type, StoredType::kBF16);
  EXPECT_EQ((*tensors)[1].name, "scalar");
  EXPECT_EQ((*tensors)[2].name, "empty");
  EXPECT_EQ((*tensors)[3].name, "late");
  EXPECT_EQ((*tensors)[3].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(static_cast<char>((*tensors)[3].bytes.front()), 'e');
  EXPECT_EQ((*tensors)[3].bytes.size(), 8u);
}

TEST(SafetensorsTest, TakesMetadataThatIsNull) {
  const auto tensors = Parse(SafetensorsBytes(
      R"({"__metadata__":null,"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 1u);
  EXPECT_THAT(MessageFor(R"({"__metadata__":[]})", ""), HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(MessageFor(R"({"__metadata__":{"x":null}})", ""),
              HasSubstr("__metadata__ \"x\" is not a string"));
  EXPECT_THAT(MessageFor(R"({"a":null})", ""), HasSubstr("tensor \"a\" is not described by a JSON object"));
}

TEST(SafetensorsTest, StatesWhatATruncatedFileLacks) {
  const std::string whole =
      SafetensorsBytes(One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "12345678");
  ASSERT_TRUE(Parse(whole).ok());
  EXPECT_EQ(
      Refusal(whole.substr(0, whole.size() - 3)),
      "x.safetensors: truncated: the header asks for 8 bytes of tensors, the file has 5 after its header");
  EXPECT_EQ(
      Refusal(whole.substr(0, 20)),
      "x.safetensors: truncated: a header of 54 bytes needs a file of at least 62 bytes, this one has 20");
  EXPECT_EQ(Refusal(whole.substr(0, 5)), "x.safetensors: truncated: needs at least 8 bytes, has 5");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(Parse(whole.substr(0, size)).ok()) << size;
}

TEST(SafetensorsTest, RefusesAHeaderThatLiesAboutItsLength) {
  std::string bytes = SafetensorsBytes(One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "12345678");
  bytes[7] = '\x7F';
  EXPECT_THAT(Refusal(bytes),
              HasSubstr("states a header of 9151314442816847926 bytes, more than the 100000000 allowed"));
  bytes[7] = '\0';
  bytes[0] = static_cast<char>(bytes[0] - 1);
  EXPECT_THAT(Refusal(bytes), HasSubstr("x.safetensors: header: not valid JSON at byte "));
}

TEST(SafetensorsTest, RefusesAHeaderThatLiesAboutSizes) {
  EXPECT_EQ(MessageFor(One(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "12345678"),
            "x.safetensors: tensor \"a\" has data_offsets [0,8] of 8 bytes, but shape [3] of f32 takes 12");
  EXPECT_THAT(
      MessageFor(One(R"("dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,8])"), "12345678"),
      HasSubstr("more than any file can hold"));
  EXPECT_THAT(MessageFor(One(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "12345678"),
              HasSubstr("tensor \"a\" has shape [-2]"));
  EXPECT_THAT(MessageFor(One(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "12345678"),
              HasSubstr("tensor \"a\" has shape [2.0]"));
}

TEST(SafetensorsTest, RefusesAHeaderThatLiesAboutOffsets) {
  EXPECT_THAT(MessageFor(One(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "12345678"),
              HasSubstr("expected [begin, end] with begin <= end"));
  EXPECT_THAT(MessageFor(One(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "12345678"),
              HasSubstr("tensor \"a\" has data_offsets [0]"));
  EXPECT_EQ(MessageFor(One(R"("dtype":"F32","shape":[2],"data_offsets":[1,9])"), "123456789"),
            "x.safetensors: tensor \"a\" begins at offset 1, after a hole: expected 0");
  EXPECT_EQ(MessageFor(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                       "12345678"),
            "x.safetensors: tensor \"b\" begins at offset 4, inside the tensor before it: expected 8");
  EXPECT_EQ(MessageFor(One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "1234567890"),
            "x.safetensors: has 2 bytes after its last tensor");
  EXPECT_THAT(
      MessageFor(
          One(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551616])"),
          "12345678"),
      HasSubstr("tensor \"a\" has data_offsets"));
}

TEST(SafetensorsTest, ReadsWhatQuantizedWeightsAreStoredAs) {
  for (const auto& [type, values, stored, name] :
       {std::tuple<const char*, int, StoredType, const char*>{"I8", 8, StoredType::kI8, "i8"},
        {"U8", 8, StoredType::kU8, "u8"},
        {"I32", 2, StoredType::kI32, "i32"},
        {"I64", 1, StoredType::kI64, "i64"},
        {"F8_E4M3", 8, StoredType::kF8, "f8"}}) {
    SCOPED_TRACE(type);
    const auto parsed = Parse(SafetensorsBytes(std::string("{\"a\":{\"dtype\":\"") + type + "\",\"shape\":[" +
                                                   std::to_string(values) + "],\"data_offsets\":[0,8]}}",
                                               "12345678"));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ((*parsed)[0].type, stored);
    EXPECT_EQ(SafetensorsName(stored), type);
    EXPECT_EQ((*parsed)[0].TypeName(), name);
  }
}

TEST(SafetensorsTest, RefusesUnknownDtypesFieldsAndKeysThatStandTwice) {
  EXPECT_EQ(MessageFor(One(R"("dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8])"), "12345678"),
            "x.safetensors: tensor \"a\" has dtype \"F8_E5M2\", which is not known: use F32, F16 or BF16, or "
            "F8_E4M3, I8, U8, "
            "I32 or I64 of quantized weights");
  EXPECT_THAT(MessageFor(One(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1])"), "12345678"),
              HasSubstr("tensor \"a\" has an unknown field \"strides\""));
  EXPECT_THAT(MessageFor(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         "12345678"),
              HasSubstr("key \"a\" stands twice in one object"));
  EXPECT_THAT(MessageFor(R"({"__metadata__":{"x":1}})", ""), HasSubstr("__metadata__ \"x\" is not a string"));
  EXPECT_THAT(MessageFor(R"( {"a":1})", ""), HasSubstr("does not begin with"));
  EXPECT_THAT(MessageFor(R"({"a":1})", ""), HasSubstr("tensor \"a\" is not described by a JSON object"));
  EXPECT_THAT(MessageFor(std::string(100000, '['), ""), HasSubstr("does not begin with"));
  EXPECT_THAT(MessageFor("{\"a\":" + std::string(100000, '['), ""), HasSubstr("nested more than 64 deep"));
}

TEST(SafetensorsFileTest, NamesTheFileThatIsMissingEmptyOrAFolder) {
  const ModelFolder folder("llama-mha");
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open(folder.path() + "/none").status()));
  folder.Write("empty", "");
  EXPECT_EQ(SafetensorsFile::Open(folder.path() + "/empty").status().message(),
            folder.path() + "/empty: truncated: needs at least 8 bytes, has 0");
  EXPECT_EQ(SafetensorsFile::Open(folder.path()).status().message(), folder.path() + ": not a regular file");
}

TEST(SafetensorsFileTest, MovesWithItsMapping) {
  const ModelFolder folder("llama-mha");
  auto file = SafetensorsFile::Open(folder.path() + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const std::byte* data = file->tensors().front().bytes.data();
  const SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(moved.tensors().front().bytes.data(), data);
  EXPECT_NO_FATAL_FAILURE((void)*moved.tensors().back().bytes.rbegin());
}

}  // namespace
}  // namespace baton::model
