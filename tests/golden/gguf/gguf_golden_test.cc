// GGUF files of the `gguf` package, against the numbers that it and transformers read from them
// (make_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>
#include <string>

#include "engine/kv/store/kv_store.h"
#include "engine/model/decoder.h"
#include "engine/model/safetensors.h"
#include "engine/model/summary.h"
#include "nlohmann/json.hpp"
#include "text/gguf/document.h"

namespace baton::model {
namespace {

const std::string kFolder = std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf/data/";

// Both sides compute in float32 and differ in the order of their sums alone, as in the goldens of decoders.
constexpr float kTolerance = 2e-4f;

TEST(GgufGoldenTest, BlocksAreTheNumbersThatTheirPackageReads) {
  const auto file = gguf::File::Open(kFolder + "blocks.gguf");
  const auto expected = SafetensorsFile::Open(kFolder + "blocks.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(expected->tensors().size(), file->document.tensors().size());
  std::string formats;
  for (const gguf::Tensor& tensor : file->document.tensors()) {
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.format->name, tensor.name);
    formats += (formats.empty() ? "" : ", ") + tensor.name;
    const auto wanted = std::ranges::find(expected->tensors(), tensor.name, &StoredTensor::name);
    ASSERT_NE(wanted, expected->tensors().end());
    ASSERT_EQ(wanted->shape, tensor.shape);
    std::vector<float> numbers(wanted->bytes.size() / sizeof(float));
    gguf::ExpandRow(*tensor.format, tensor.bytes, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float number =
          tensor::ValueAt(wanted->bytes.data(), tensor::DType::kF32, static_cast<int64_t>(i));
      ASSERT_EQ(std::bit_cast<uint32_t>(numbers[i]), std::bit_cast<uint32_t>(number))
          << i << ": " << numbers[i] << ", not " << number;
    }
  }
  EXPECT_EQ(formats, gguf::ReadableFormats());
}

// Logits of all positions of a prompt.
std::vector<float> LogitsOf(Decoder& decoder, const std::vector<TokenId>& prompt) {
  const auto rows = static_cast<int64_t>(prompt.size());
  auto store =
      kv::KvStore::Create(decoder.LayoutFor(tensor::DType::kF32, tensor::DType::kF32), BlocksFor(rows));
  EXPECT_TRUE(store.ok()) << store.status();
  std::vector<BlockId> blocks;
  for (uint32_t id = 0; id < static_cast<uint32_t>(BlocksFor(rows)); ++id) blocks.emplace_back(id);
  const kernels::SequenceRows sequence{.rows = rows, .first_position = 0, .blocks = blocks};
  std::vector<int64_t> wanted(prompt.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  std::vector<float> logits(prompt.size() * static_cast<size_t>(decoder.config().vocabulary));
  decoder.Forward({prompt, std::span(&sequence, 1), wanted}, *store, logits, [](int) {});
  return logits;
}

TEST(GgufGoldenTest, AModelOfMixedFormatsHasTransformersLogits) {
  const auto golden = nlohmann::json::parse(std::ifstream(kFolder + "mixed.json"));
  std::vector<TokenId> prompt;
  for (const int32_t id : golden["prompt"]) prompt.emplace_back(id);
  for (const char* backend : {"reference", "cpu"}) {
    SCOPED_TRACE(backend);
    auto kernels = kernels::MakeKernels(backend, 2);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    auto decoder = Decoder::Load(kFolder + "mixed.gguf", **kernels);
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    const int64_t vocabulary = (*decoder)->config().vocabulary;
    const std::vector<float> logits = LogitsOf(**decoder, prompt);
    for (size_t i = 0; i < golden["rows"].size(); ++i) {
      const int64_t row = golden["rows"][i];
      ASSERT_EQ(std::ssize(golden["logits"][i]), vocabulary);
      for (int64_t t = 0; t < vocabulary; ++t) {
        ASSERT_NEAR(logits[static_cast<size_t>(row * vocabulary + t)],
                    golden["logits"][i][static_cast<size_t>(t)].get<float>(), kTolerance)
            << "position " << row << ", token " << t;
      }
    }
  }
}

TEST(GgufGoldenTest, AModelOfMixedFormatsIsQuantizedAtLoad) {
  const auto golden = nlohmann::json::parse(std::ifstream(kFolder + "mixed.json"));
  std::vector<TokenId> prompt;
  for (const int32_t id : golden["prompt"]) prompt.emplace_back(id);
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  const auto exact = Decoder::Load(kFolder + "mixed.gguf", *kernels);
  const auto int8 = Decoder::Load(kFolder + "mixed.gguf", *kernels, {.precision = WeightPrecision::kInt8});
  ASSERT_TRUE(exact.ok() && int8.ok()) << exact.status() << int8.status();
  EXPECT_LT((*int8)->weight_bytes(), (*exact)->weight_bytes() / 2);
  EXPECT_NE((*int8)->weights_digest(), (*exact)->weights_digest());
  const std::vector<float> a = LogitsOf(**exact, prompt), b = LogitsOf(**int8, prompt);
  // These weights are drawn evenly from their range. A transform makes them normal, whose largest is further
  // out: the error is 0.08 of the logits here, and 0.05 without.
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{a[i]}, 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / size), 0.12);
}

TEST(GgufGoldenTest, ASummarySaysWhatIsStored) {
  const auto summary = ModelSummary::Load(kFolder + "mixed.gguf");
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->loads.ok()) << summary->loads;
  EXPECT_EQ(summary->quantization, "gguf");
  int64_t stored = 0;
  for (const auto& [type, values] : summary->values_by_type) stored += values;
  EXPECT_EQ(stored, summary->parameters);
  EXPECT_EQ(summary->values_by_type.at("q6_k"), 96 * 256 + 256 * 256);
  EXPECT_EQ(summary->values_by_type.at("q4_k"), 64 * 256 + 2 * 256 * 256);
  EXPECT_EQ(summary->stored, (std::map<std::string, int64_t>{{"f32", 9}}));
}

}  // namespace
}  // namespace baton::model
