#include "engine/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kIndex[] = "model.safetensors.index.json";

std::string MessageFor(const ModelFolder& folder) {
  const auto checkpoint = Checkpoint::Open(folder.path());
  EXPECT_FALSE(checkpoint.ok());
  return std::string(checkpoint.status().message());
}

std::string FirstShardOf(const ModelFolder& folder) {
  return json::parse(folder.Read(kIndex))["weight_map"]["model.embed_tokens.weight"];
}

TEST(CheckpointTest, FindsTensorsInAnyShard) {
  const ModelFolder folder("llama-sharded");
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->tensors().size(), 2u * 9 + 3);
  ASSERT_NE(checkpoint->Find("lm_head.weight"), nullptr);
  EXPECT_EQ(checkpoint->Find("lm_head.weight")->shape, (std::vector<int64_t>{150, 64}));
  EXPECT_EQ(checkpoint->Find("lm_head.bias"), nullptr);
}

TEST(CheckpointTest, NamesTheMissingShard) {
  const ModelFolder folder("llama-sharded");
  folder.Remove("model-00002-of-00003.safetensors");
  EXPECT_EQ(MessageFor(folder), folder.path() +
                                    ": shard \"model-00002-of-00003.safetensors\" is missing, but "
                                    "model.safetensors.index.json names it");
}

TEST(CheckpointTest, NamesATruncatedShard) {
  const ModelFolder folder("llama-sharded");
  const std::string shard = FirstShardOf(folder);
  const std::string bytes = folder.Read(shard);
  folder.Write(shard, bytes.substr(0, bytes.size() - 100));
  EXPECT_THAT(MessageFor(folder), HasSubstr(shard + ": truncated: the header asks for "));
}

TEST(CheckpointTest, RefusesAnIndexThatDisagreesWithItsShards) {
  {
    const ModelFolder folder("llama-sharded");
    folder.EditJson(kIndex, [](json& index) { index["weight_map"].erase("model.norm.weight"); });
    EXPECT_THAT(MessageFor(folder), HasSubstr("tensor \"model.norm.weight\" is not where"));
  }
  {
    const ModelFolder folder("llama-sharded");
    const std::string shard = FirstShardOf(folder);
    folder.EditJson(kIndex, [&](json& index) { index["weight_map"]["model.extra.weight"] = shard; });
    EXPECT_THAT(MessageFor(folder), HasSubstr(shard + ": tensor \"model.extra.weight\" is missing, but"));
  }
}

TEST(CheckpointTest, RefusesAnIndexThatLeadsOutOfItsFolder) {
  for (const char* bad : {"../other.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""}) {
    const ModelFolder folder("llama-sharded");
    folder.EditJson(kIndex, [&](json& index) { index["weight_map"]["lm_head.weight"] = bad; });
    EXPECT_THAT(MessageFor(folder), HasSubstr("which is not a file name")) << bad;
  }
}

TEST(CheckpointTest, RefusesAnIndexWithoutAMap) {
  const ModelFolder folder("llama-sharded");
  folder.Write(kIndex, "{}");
  EXPECT_THAT(MessageFor(folder), HasSubstr("field \"weight_map\" is missing or not an object"));
  folder.Write(kIndex, "[1, 2");
  EXPECT_THAT(MessageFor(folder), HasSubstr("model.safetensors.index.json: not valid JSON"));
}

TEST(CheckpointTest, SaysWhatItLooksForInAFolderWithoutWeights) {
  const ModelFolder folder("llama-mha");
  folder.Remove("model.safetensors");
  EXPECT_THAT(MessageFor(folder),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json is here"));
}

// Puts all tensors of the shards into one file, last tensor first.
void Join(const ModelFolder& folder) {
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  json header;
  std::string data;
  for (auto it = checkpoint->tensors().rbegin(); it != checkpoint->tensors().rend(); ++it) {
    const StoredTensor& tensor = *it->second;
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  folder.Write("model.safetensors", SafetensorsBytes(header.dump(), data));
}

TEST(CheckpointTest, DigestIsOfTheTensorsNotOfTheirFiles) {
  const ModelFolder folder("llama-sharded");
  const std::string sharded = Checkpoint::Open(folder.path())->Digest();
  EXPECT_EQ(sharded.size(), 32u);
  Join(folder);
  EXPECT_EQ(Checkpoint::Open(folder.path())->Digest(), sharded);
}

TEST(CheckpointTest, DigestSeesEveryBitNameAndShape) {
  const ModelFolder folder("llama-mha");
  const std::string original = Checkpoint::Open(folder.path())->Digest();
  folder.EditTensors([](json&, std::string& data) { data.back() = static_cast<char>(data.back() ^ 1); });
  EXPECT_NE(Checkpoint::Open(folder.path())->Digest(), original);
  folder.EditTensors([](json& header, std::string& data) {
    data.back() = static_cast<char>(data.back() ^ 1);
    auto& shape = header["model.embed_tokens.weight"]["shape"];
    std::swap(shape[0], shape[1]);
  });
  const std::string turned = Checkpoint::Open(folder.path())->Digest();
  EXPECT_NE(turned, original);
  folder.EditTensors([](json& header, std::string&) {
    auto& shape = header["model.embed_tokens.weight"]["shape"];
    std::swap(shape[0], shape[1]);
    header["model.other.weight"] = header["model.norm.weight"];
    header.erase("model.norm.weight");
  });
  EXPECT_NE(Checkpoint::Open(folder.path())->Digest(), original);
}

}  // namespace
}  // namespace baton::model
