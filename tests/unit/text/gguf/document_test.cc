#include "text/gguf/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/text/gguf/gguf_writer.h"

namespace baton::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Document> Parse(const std::string& bytes) {
  return Document::Parse(std::as_bytes(std::span(bytes)), "x.gguf");
}

std::string Refusal(const std::string& bytes) {
  const absl::Status status = Parse(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("x.gguf: "));
  return std::string(status.message());
}

// A file with a value of each kind and two tensors.
GgufWriter Whole() {
  GgufWriter writer;
  writer.Text("general.architecture", "llama")
      .U32("count", 7)
      .F32("number", 0.5f)
      .Bool("flag", true)
      .Put("small", ValueType::kI8, BytesOf(int8_t{-3}))
      .Put("large", ValueType::kU64, BytesOf(uint64_t{1} << 40))
      .Put("negative", ValueType::kI64, BytesOf(int64_t{-5}))
      .Put("double", ValueType::kF64, BytesOf(0.25))
      .Put("byte", ValueType::kU8, BytesOf(uint8_t{200}))
      .Put("short", ValueType::kI16, BytesOf(int16_t{-300}))
      .Put("word", ValueType::kU16, BytesOf(uint16_t{60000}))
      .Put("int", ValueType::kI32, BytesOf(int32_t{-70000}))
      .Texts("texts", {"a", "", "long text"})
      .Floats("floats", {1, -2})
      .Integers("integers", {3, -4})
      .Put("nested", ValueType::kArray,
           BytesOf(ValueType::kArray) + BytesOf(uint64_t{1}) + BytesOf(ValueType::kU8) +
               BytesOf(uint64_t{2}) + "ab")
      .Tensor("first", {2, 3}, kIdF32, std::string(24, 'x'))
      .Tensor("second", {5}, kIdBF16, "0123456789");
  return writer;
}

TEST(GgufDocumentTest, ReadsWhatWasWritten) {
  const std::string bytes = Whole().Bytes();
  const auto document = Parse(bytes);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->metadata().size(), 16u);
  EXPECT_EQ(document->Text("general.architecture").value(), "llama");
  EXPECT_EQ(document->Integer("count", 0, 9).value(), 7);
  EXPECT_EQ(document->Number("count").value(), 7);
  EXPECT_EQ(document->Number("number").value(), 0.5);
  EXPECT_EQ(document->Number("double").value(), 0.25);
  EXPECT_TRUE(document->Flag("flag").value());
  EXPECT_EQ(document->Integer("small", -9, 9).value(), -3);
  EXPECT_EQ(document->Integer("large", 0, int64_t{1} << 41).value(), int64_t{1} << 40);
  EXPECT_EQ(document->Integer("negative", -9, 9).value(), -5);
  EXPECT_EQ(document->Integer("byte", 0, 255).value(), 200);
  EXPECT_EQ(document->Integer("short", -999, 0).value(), -300);
  EXPECT_EQ(document->Integer("word", 0, 99999).value(), 60000);
  EXPECT_EQ(document->Integer("int", -99999, 0).value(), -70000);
  EXPECT_THAT(document->Texts("texts").value(), ElementsAre("a", "", "long text"));
  EXPECT_THAT(document->Numbers("floats").value(), ElementsAre(1, -2));
  EXPECT_THAT(document->Numbers("integers").value(), ElementsAre(3, -4));
  // Missing ones.
  EXPECT_EQ(document->Integer("none", 0, 9, 4).value(), 4);
  EXPECT_EQ(document->Text("none", "x").value(), "x");
  EXPECT_TRUE(document->Texts("none")->empty());

  ASSERT_EQ(document->tensors().size(), 2u);
  const Tensor* const first = document->FindTensor("first");
  ASSERT_NE(first, nullptr);
  EXPECT_THAT(first->shape, ElementsAre(2, 3));
  EXPECT_EQ(first->format->name, "f32");
  EXPECT_EQ(first->bytes.size(), 24u);
  EXPECT_EQ(static_cast<char>(first->bytes[0]), 'x');
  const Tensor* const second = document->FindTensor("second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->bytes.size(), 10u);
  EXPECT_EQ(static_cast<char>(second->bytes[9]), '9');
  EXPECT_EQ(document->FindTensor("third"), nullptr);
}

TEST(GgufDocumentTest, ReadsVersion2AndOtherAlignments) {
  GgufWriter writer = Whole();
  writer.version = 2;
  EXPECT_TRUE(Parse(writer.Bytes()).ok());
  writer = Whole();
  writer.U32("general.alignment", 64).alignment = 64;
  const std::string bytes = writer.Bytes();
  const auto document = Parse(bytes);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(static_cast<char>(document->FindTensor("second")->bytes[0]), '0');
}

TEST(GgufDocumentTest, NamesTheKeyOfAWrongValue) {
  const std::string bytes = Whole().Bytes();
  const auto document = Parse(bytes);
  ASSERT_TRUE(document.ok()) << document.status();
  const auto message = [](const auto& result) { return std::string(result.status().message()); };
  EXPECT_EQ(message(document->Integer("none", 0, 9)), "x.gguf: key \"none\" is missing");
  EXPECT_EQ(message(document->Integer("count", 0, 6)), "x.gguf: key \"count\" is 7: expected 0 to 6");
  EXPECT_EQ(message(document->Integer("number", 0, 6)), "x.gguf: key \"number\" is not an integer");
  EXPECT_EQ(message(document->Integer("integers", 0, 6)), "x.gguf: key \"integers\" is not an integer");
  EXPECT_EQ(message(document->Number("flag")), "x.gguf: key \"flag\" is not a finite number");
  EXPECT_EQ(message(document->Flag("count")), "x.gguf: key \"count\" is neither true nor false");
  EXPECT_EQ(message(document->Text("texts")), "x.gguf: key \"texts\" is not a text");
  EXPECT_EQ(message(document->Texts("floats")), "x.gguf: key \"floats\" is not an array of texts");
  EXPECT_EQ(message(document->Numbers("texts")), "x.gguf: key \"texts\" is not an array of numbers");
  EXPECT_EQ(message(document->Numbers("nested")), "x.gguf: key \"nested\" is not an array of numbers");
}

TEST(GgufDocumentTest, RefusesWhatIsNoGguf) {
  EXPECT_THAT(Refusal(""), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(Refusal("GGML and more"), HasSubstr("does not begin with \"GGUF\""));
  GgufWriter writer;
  writer.version = 1;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("version 1"));
  writer.version = 3 << 24;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("big-endian"));
}

// Every length that a file could be cut to: refused, and never read beyond.
TEST(GgufDocumentTest, RefusesEveryTruncation) {
  const std::string bytes = Whole().Bytes();
  // After the last tensor there is padding, which may be missing.
  const size_t needed = bytes.rfind("0123456789") + 10;
  for (size_t size = 0; size < needed; ++size) {
    // A copy of its own, so that AddressSanitizer sees a read beyond it.
    const std::vector<std::byte> cut(std::as_bytes(std::span(bytes)).begin(),
                                     std::as_bytes(std::span(bytes)).begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(Document::Parse(cut, "x.gguf").ok()) << size;
  }
  EXPECT_TRUE(Parse(bytes.substr(0, needed)).ok());
}

TEST(GgufDocumentTest, RefusesCountsThatTheFileCantHold) {
  GgufWriter writer = Whole();
  writer.more_keys = uint64_t{1} << 62;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("key"));
  writer = Whole();
  writer.more_tensors = uint64_t{1} << 62;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("tensor"));
  for (const ValueType type : {ValueType::kText, ValueType::kU8, ValueType::kF64, ValueType::kArray}) {
    for (const uint64_t count : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{1000}}) {
      GgufWriter array;
      array.Put("a", ValueType::kArray, BytesOf(type) + BytesOf(count));
      EXPECT_FALSE(Parse(array.Bytes()).ok());
    }
  }
  GgufWriter text;
  text.Put("a", ValueType::kText, BytesOf(~uint64_t{0}));
  EXPECT_THAT(Refusal(text.Bytes()), HasSubstr("truncated: its 64 bytes end within the value of key \"a\""));
}

TEST(GgufDocumentTest, NamesWhatIsWrongInMetadata) {
  EXPECT_THAT(Refusal(Whole().U32("count", 8).Bytes()), HasSubstr("key \"count\" is there twice"));
  EXPECT_THAT(Refusal(Whole().Put("odd", static_cast<ValueType>(13), "").Bytes()),
              HasSubstr("key \"odd\" has type 13, which is not known"));
  EXPECT_THAT(Refusal(Whole().U32("general.alignment", 24).Bytes()),
              HasSubstr("key \"general.alignment\" is 24, which is no power of two"));
  EXPECT_THAT(Refusal(Whole().U32("general.alignment", 0).Bytes()), HasSubstr("general.alignment"));
  EXPECT_THAT(Refusal(Whole().Text("", "x").Bytes()), HasSubstr("key 17 of the metadata has 0 bytes"));
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += BytesOf(ValueType::kArray) + BytesOf(uint64_t{1});
  EXPECT_THAT(Refusal(Whole().Put("deep", ValueType::kArray, deep).Bytes()),
              HasSubstr("key \"deep\" has arrays in arrays more than 8 deep"));
}

TEST(GgufDocumentTest, NamesWhatIsWrongInATensor) {
  const std::string eight(8, 'x');
  EXPECT_THAT(Refusal(Whole().Tensor("first", {2}, kIdF32, eight).Bytes()),
              HasSubstr("tensor \"first\" is there twice"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {2}, 99, eight).Bytes()),
              HasSubstr("tensor \"t\" has type 99, which is not known"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {256}, 10, eight).Bytes()),
              HasSubstr("tensor \"t\" is stored as q2_k, which is not read: use f32, f16, bf16, q8_0, q4_0"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {3, 40}, 8, eight).Bytes()),
              HasSubstr("tensor \"t\" has rows of 40 values, which are no whole blocks of 32 of q8_0"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {}, kIdF32, eight).Bytes()),
              HasSubstr("tensor \"t\" has 0 dimensions"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {1, 1, 1, 1, 2}, kIdF32, eight).Bytes()),
              HasSubstr("tensor \"t\" has 5 dimensions"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {0}, kIdF32, "").Bytes()),
              HasSubstr("tensor \"t\" has an extent of 0"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {-1}, kIdF32, "").Bytes()),
              HasSubstr("tensor \"t\" has an extent"));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(Refusal(Whole().Tensor("t", {huge, huge}, kIdF32, eight).Bytes()),
              HasSubstr("tensor \"t\" has a shape that is more than any file can hold"));
  EXPECT_THAT(Refusal(Whole().Tensor("t", {huge}, kIdF32, eight).Bytes()),
              HasSubstr("truncated: tensor \"t\" has"));
  GgufWriter writer = Whole();
  writer.shift = 8;
  EXPECT_THAT(Refusal(writer.Bytes()),
              HasSubstr("tensor \"second\" has offset 40, which is no multiple of the alignment, 32"));
  writer.shift = -32;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("has offset 0, inside the tensor before it"));
  writer.shift = int64_t{1} << 62;
  EXPECT_THAT(Refusal(writer.Bytes()), HasSubstr("truncated: tensor \"second\""));
}

TEST(GgufFileTest, OpensAFile) {
  const std::string path = testing::TempDir() + "/document-" + std::to_string(getpid()) + ".gguf";
  std::ofstream(path, std::ios::binary) << Whole().Bytes();
  absl::StatusOr<File> file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const File moved = *std::move(file);
  EXPECT_EQ(static_cast<char>(moved.document.FindTensor("second")->bytes[3]), '3');
  std::ofstream(path, std::ios::binary) << "";
  EXPECT_THAT(std::string(File::Open(path).status().message()), HasSubstr(path));
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(File::Open(path).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(File::Open(testing::TempDir()).status()));
  EXPECT_TRUE(IsGguf("a/b.gguf"));
  EXPECT_FALSE(IsGguf("a/b.gguf/"));
}

}  // namespace
}  // namespace baton::gguf
