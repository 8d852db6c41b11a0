// Seeded mutations of real files, through the functions that libFuzzer drives too (tests/fuzz/model_bytes.h).
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/model_bytes.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

// A few edits of the kinds that files suffer: bits, bytes, digits, pieces cut out, doubled or moved, a lost
// end.
std::string Mutate(std::string bytes, std::mt19937& random) {
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const size_t edits = 1 + below(4);
  for (size_t edit = 0; edit < edits && !bytes.empty(); ++edit) {
    const size_t at = below(bytes.size());
    const size_t length = std::min(bytes.size() - at, 1 + below(24));
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
        bytes[at] = "0123456789-.eE[]{}\",:ntf"[below(24)];
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 5:
        bytes.replace(at, length, bytes.substr(below(bytes.size()), length));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

constexpr uint32_t kMutationSeed = 7;

TEST(MutationTest, SafetensorsAreRefusedOrSound) {
  // Small, so that most edits hit the header.
  const std::string original = SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F32","shape":[2,2],)"
      R"("data_offsets":[0,16]},"b.weight":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},)"
      R"("c":{"dtype":"F16","shape":[],"data_offsets":[24,26]}})",
      "abcdefghijklmnopqrstuvwxyz");
  ASSERT_EQ(FuzzSafetensors(AsBytes(original)).value(), true);
  std::mt19937 random(kMutationSeed);
  int accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto result = FuzzSafetensors(AsBytes(Mutate(original, random)));
    ASSERT_TRUE(result.ok()) << "seed " << kMutationSeed << ", round " << i << ": " << result.status();
    accepted += *result ? 1 : 0;
  }
  EXPECT_GT(accepted, 1000) << "the mutations hardly ever get past the checks";
  EXPECT_LT(accepted, 60000);
}

TEST(MutationTest, ConfigsAreRefusedOrSound) {
  std::mt19937 random(kMutationSeed);
  int accepted = 0;
  for (const char* name : {"llama3-rope", "llama-yarn", "llama-dynamic", "mistral-window", "qwen3-window",
                           "qwen2-moe", "glm4-moe", "gpt-oss-mxfp4"}) {
    const std::string original = ModelFolder(name).Read("config.json");
    ASSERT_EQ(FuzzConfig(AsBytes(original)).value(), true);
    for (int i = 0; i < 5000; ++i) {
      const auto result = FuzzConfig(AsBytes(Mutate(original, random)));
      ASSERT_TRUE(result.ok()) << "seed " << kMutationSeed << ", " << name << ", round " << i << ": "
                               << result.status();
      accepted += *result ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 500) << "the mutations hardly ever get past the checks";
  EXPECT_LT(accepted, 15000);
}

}  // namespace
}  // namespace baton::model
