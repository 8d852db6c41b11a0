// Whole models whose experts lie in a file: the same bits as with all of them in memory, however few are
// there at once, and a refusal of whatever is not this model's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/model/decoder.h"
#include "engine/model/expert_packing.h"
#include "engine/model/expert_store.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

// A prompt in chunks of random sizes and then single steps: all logits.
std::vector<float> AllLogits(Decoder& decoder, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto store = kv::KvStore::Create(decoder.LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 4);
  EXPECT_TRUE(store.ok()) << store.status();
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(0), BlockId(3)};
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 5) % 150);
  const int64_t vocabulary = decoder.config().vocabulary;
  std::vector<float> logits(static_cast<size_t>(40 * vocabulary));
  for (int64_t first = 0; first < 40;) {
    const int64_t rows =
        first < 36 ? std::min<int64_t>(36 - first, static_cast<int64_t>(1 + random() % 20)) : 1;
    const kernels::SequenceRows sequence{.rows = rows, .first_position = first, .blocks = blocks};
    std::vector<int64_t> wanted;
    for (int64_t r = 0; r < rows; ++r) wanted.push_back(r);
    decoder.Forward({std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                     std::span(&sequence, 1), wanted},
                    *store,
                    std::span(logits).subspan(static_cast<size_t>(first * vocabulary),
                                              static_cast<size_t>(rows * vocabulary)),
                    [](int) {});
    first += rows;
  }
  return logits;
}

std::string Golden(const std::string& name) {
  return std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/" + name;
}

class ExpertsOutsideTest : public testing::Test {
 protected:
  absl::StatusOr<PackedExperts> Pack(const std::string& model, WeightPrecision precision) const {
    return PackExperts({.folder = model, .file = file_, .precision = precision, .threads = 2});
  }
  absl::StatusOr<std::unique_ptr<Decoder>> Load(const std::string& model, WeightPrecision precision,
                                                int64_t memory) {
    return Decoder::Load(model, *kernels_,
                         {.precision = precision, .expert_file = file_, .expert_memory = memory});
  }

  void FlipByte(int64_t at) const {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }

  const ModelFolder folder_{"mixtral"};
  const std::string file_ = folder_.path() + "/experts";
  const std::unique_ptr<kernels::Kernels> kernels_ = *kernels::MakeCpuKernels({.threads = 2});
};

TEST_F(ExpertsOutsideTest, ChangeNoBitHoweverFewAreResident) {
  uint64_t seed = 11;
  for (const char* model : {"qwen3-moe", "qwen2-moe", "glm4-moe", "mixtral", "gpt-oss", "gpt-oss-mxfp4"}) {
    for (const WeightPrecision precision :
         {WeightPrecision::kStored, WeightPrecision::kF32, WeightPrecision::kBF16, WeightPrecision::kInt8,
          WeightPrecision::kInt4}) {
      SCOPED_TRACE(testing::Message() << model << " " << Name(precision) << " seed " << ++seed);
      const auto inside = Decoder::Load(Golden(model), *kernels_, {.precision = precision});
      ASSERT_TRUE(inside.ok()) << inside.status();
      const std::vector<float> expected = AllLogits(**inside, seed);
      const auto packed = Pack(Golden(model), precision);
      ASSERT_TRUE(packed.ok()) << packed.status();
      EXPECT_EQ(packed->bytes, static_cast<int64_t>(std::filesystem::file_size(file_)));
      const auto all = Load(Golden(model), precision, int64_t{1} << 30);
      ASSERT_TRUE(all.ok()) << all.status();
      ASSERT_EQ((*all)->expert_store()->experts(), packed->experts);
      EXPECT_EQ(AllLogits(**all, seed), expected);
      EXPECT_LT((*all)->weight_bytes(), (*inside)->weight_bytes());
      EXPECT_EQ((*all)->weights_digest(), (*inside)->weights_digest());
      const ExpertStore::Stats used = (*all)->expert_store()->stats();
      const int64_t slot = used.resident_bytes / used.resident;
      for (const int64_t slots : {int64_t{1}, int64_t{2}, packed->experts / 2}) {
        const auto few = Load(Golden(model), precision, slots * slot);
        ASSERT_TRUE(few.ok()) << few.status();
        ASSERT_EQ((*few)->expert_store()->slots(), slots);
        EXPECT_EQ(AllLogits(**few, seed + 1000), expected) << slots << " experts";
        const ExpertStore::Stats stats = (*few)->expert_store()->stats();
        EXPECT_LE(stats.resident_bytes, slots * slot);
        EXPECT_GT(stats.misses, used.misses);
      }
    }
  }
}

// A file that fits is left alone; one of other weights, or a damaged one, is written again; what is no such
// file stays.
TEST_F(ExpertsOutsideTest, ArePackedOnce) {
  const std::string model = folder_.path();
  const auto packed = Pack(model, WeightPrecision::kInt8);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_FALSE(packed->were_there);
  const auto written = std::filesystem::last_write_time(file_);
  const auto again = Pack(model, WeightPrecision::kInt8);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->were_there);
  EXPECT_EQ(again->experts, packed->experts);
  EXPECT_EQ(again->bytes, packed->bytes);
  EXPECT_EQ(std::filesystem::last_write_time(file_), written);
  const auto repacked = [&](WeightPrecision precision) {
    const auto result = Pack(model, precision);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() && !result->were_there && Load(model, precision, 1 << 30).ok();
  };
  EXPECT_TRUE(repacked(WeightPrecision::kInt4));
  FlipByte(5000);
  EXPECT_THAT(std::string(Load(model, WeightPrecision::kInt4, 1 << 30).status().message()),
              HasSubstr("expert 0 of layer 0 can't be read from"));
  EXPECT_TRUE(repacked(WeightPrecision::kInt4));
  FlipByte(90);  // of its header
  EXPECT_TRUE(repacked(WeightPrecision::kInt4));
  std::ofstream(file_, std::ios::trunc) << "letters to a friend";
  EXPECT_EQ(Pack(model, WeightPrecision::kInt4).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(file_), 19u);
}

TEST_F(ExpertsOutsideTest, RefusesWhatIsNotOfThisModel) {
  const std::string model = folder_.path();
  const auto message = [&](WeightPrecision precision, int64_t memory = 1 << 30) {
    return std::string(Load(model, precision, memory).status().message());
  };
  EXPECT_THAT(message(WeightPrecision::kStored), HasSubstr("`baton model pack` makes it"));
  ASSERT_TRUE(Pack(model, WeightPrecision::kStored).ok());
  EXPECT_EQ(message(WeightPrecision::kStored), "");
  EXPECT_THAT(message(WeightPrecision::kInt8), HasSubstr("with other --weights"));
  EXPECT_THAT(message(WeightPrecision::kStored, 100), HasSubstr("raise --expert-memory"));
  const auto reference = kernels::MakeReferenceKernels();
  EXPECT_THAT(std::string(Decoder::Load(model, *reference, {.expert_file = file_, .expert_memory = 1 << 30})
                              .status()
                              .message()),
              HasSubstr("use --backend cpu"));
  // One weight of one expert is another: the same shape, and not the same model.
  folder_.EditTensors([](nlohmann::json& header, std::string& data) {
    for (auto& [name, tensor] : header.items()) {
      if (!name.ends_with("experts.1.w2.weight")) continue;
      data[tensor["data_offsets"][0].get<size_t>()] ^= 1;
      return;
    }
    FAIL() << "no such tensor";
  });
  EXPECT_THAT(message(WeightPrecision::kStored), HasSubstr("was packed of other weights"));
  EXPECT_THAT(std::string(PackExperts({.folder = Golden("llama-mha"), .file = file_}).status().message()),
              HasSubstr("is no mixture of experts"));
}

}  // namespace
}  // namespace baton::model
