#include "engine/model/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const auto kIgnoreLayers = [](int) {};

class DecoderTest : public testing::Test {
 protected:
  std::string MessageFor(const ModelFolder& folder) {
    const auto decoder = Decoder::Load(folder.path(), *kernels_);
    EXPECT_FALSE(decoder.ok());
    return std::string(decoder.status().message());
  }

  std::unique_ptr<Decoder> Load(const ModelFolder& folder) {
    auto decoder = Decoder::Load(folder.path(), *kernels_);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    return decoder.ok() ? *std::move(decoder) : nullptr;
  }

  std::unique_ptr<kernels::Kernels> kernels_ = kernels::MakeReferenceKernels();
};

// Tests that hold for the numbers of every backend.
class DecoderNumbersTest : public DecoderTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    auto kernels = kernels::MakeKernels(GetParam(), /*threads=*/2);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    kernels_ = *std::move(kernels);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DecoderNumbersTest, testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(DecoderTest, NamesAMissingTensor) {
  const ModelFolder folder("llama-mha");
  folder.EditTensors([](json& header, std::string&) {
    header["model.layers.1.mlp.other.weight"] = header["model.layers.1.mlp.up_proj.weight"];
    header.erase("model.layers.1.mlp.up_proj.weight");
  });
  EXPECT_EQ(MessageFor(folder),
            folder.path() + ": tensor \"model.layers.1.mlp.up_proj.weight\" [80, 64] is missing");
}

TEST_F(DecoderTest, NamesAnUnknownTensor) {
  const ModelFolder folder("llama-mha");
  folder.EditTensors([](json& header, std::string& data) {
    header["model.layers.0.self_attn.q_norm.weight"] = {
        {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data.size(), data.size() + 4}}};
    data += "1234";
  });
  EXPECT_EQ(MessageFor(folder), folder.path() +
                                    ": tensor \"model.layers.0.self_attn.q_norm.weight\" [1] is not known to "
                                    "LlamaForCausalLM with this config.json");
}

TEST_F(DecoderTest, NamesATensorOfAnotherShape) {
  const ModelFolder folder("llama-mha");
  folder.EditConfig([](json& config) { config["intermediate_size"] = 81; });
  EXPECT_EQ(MessageFor(folder), folder.path() +
                                    ": tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [80, 64], "
                                    "config.json asks for [81, 64]");
}

TEST_F(DecoderTest, NamesTheBiasesThatAConfigForgot) {
  const ModelFolder folder("llama-bias");
  folder.EditConfig([](json& config) { config["mlp_bias"] = false; });
  EXPECT_THAT(MessageFor(folder),
              HasSubstr("tensor \"model.layers.0.mlp.down_proj.bias\" [64] is not known to"));
}

TEST_F(DecoderTest, PassesOnWhatConfigAndFilesRefuse) {
  {
    const ModelFolder folder("llama-mha");
    folder.EditConfig([](json& config) { config["architectures"] = {"GPT2LMHeadModel"}; });
    EXPECT_THAT(MessageFor(folder),
                HasSubstr(folder.path() + "/config.json: unknown architecture \"GPT2LMHeadModel\""));
  }
  {
    const ModelFolder folder("llama-mha");
    folder.Write("config.json", "{}");
    EXPECT_THAT(MessageFor(folder),
                HasSubstr("/config.json: field \"architectures\" must be a list of one name"));
  }
  {
    const ModelFolder folder("llama-mha");
    folder.Remove("config.json");
    EXPECT_EQ(MessageFor(folder), folder.path() + ": no model folder: it has no config.json");
  }
  {
    const ModelFolder folder("llama-yarn");
    folder.EditConfig([](json& config) { config["rope_scaling"]["rope_type"] = "axial"; });
    EXPECT_THAT(MessageFor(folder), HasSubstr("rope_scaling: field \"rope_type\" is \"axial\""));
  }
  {
    const ModelFolder folder("llama-sharded");
    folder.Remove("model-00003-of-00003.safetensors");
    EXPECT_THAT(MessageFor(folder), HasSubstr("shard \"model-00003-of-00003.safetensors\" is missing"));
  }
  {
    const ModelFolder folder("llama-mha");
    const std::string bytes = folder.Read("model.safetensors");
    folder.Write("model.safetensors", bytes.substr(0, bytes.size() / 2));
    EXPECT_THAT(MessageFor(folder), HasSubstr("model.safetensors: truncated: the header asks for "));
  }
  {
    const ModelFolder folder("llama-mha");
    folder.EditTensors([](json& header, std::string&) { header["model.norm.weight"]["dtype"] = "F8_E5M2"; });
    EXPECT_THAT(MessageFor(folder), HasSubstr("tensor \"model.norm.weight\" has dtype \"F8_E5M2\""));
  }
  {
    const ModelFolder folder("llama-mha");
    folder.EditTensors([](json& header, std::string&) { header["model.norm.weight"]["shape"] = {65}; });
    EXPECT_THAT(MessageFor(folder), HasSubstr("tensor \"model.norm.weight\" has data_offsets"));
  }
  {
    const ModelFolder folder("llama-mha");
    folder.EditTensors([](json& header, std::string&) {
      auto& offsets = header["model.norm.weight"]["data_offsets"];
      offsets = {offsets[0].get<int64_t>() - 4, offsets[1].get<int64_t>() - 4};
    });
    EXPECT_THAT(MessageFor(folder), HasSubstr("inside the tensor before it"));
  }
}

// One sequence, [0, tokens): logits of the last position.
std::vector<float> LastLogits(Decoder& decoder, std::span<const TokenId> tokens,
                              tensor::DType keys = tensor::DType::kF32,
                              tensor::DType values = tensor::DType::kF32) {
  auto store = kv::KvStore::Create(decoder.LayoutFor(keys, values), 8);
  EXPECT_TRUE(store.ok()) << store.status();
  std::vector<BlockId> blocks;
  for (uint32_t id = 0; id < 8; ++id) blocks.emplace_back(7 - id);
  const auto rows = static_cast<int64_t>(tokens.size());
  const kernels::SequenceRows sequence{.rows = rows, .blocks = blocks};
  const int64_t last = rows - 1;
  std::vector<float> logits(static_cast<size_t>(decoder.config().vocabulary));
  decoder.Forward({tokens, std::span(&sequence, 1), std::span(&last, 1)}, *store, logits, kIgnoreLayers);
  return logits;
}

std::vector<TokenId> RandomTokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.emplace_back(
        std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(vocabulary) - 1)(random));
  }
  return tokens;
}

TEST_P(DecoderNumbersTest, ToleratesLeftoverRopeFrequenciesAndUnalignedTensors) {
  const ModelFolder folder("llama-gqa-tied");
  const auto tokens = RandomTokens(20, 150, 1);
  const auto plain = LastLogits(*Load(folder), tokens);
  folder.EditTensors([](json& header, std::string& data) {
    // One odd tensor in front shifts all others by a byte pair; the header's length shifts them by one more.
    for (auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      for (auto& offset : tensor["data_offsets"]) offset = offset.get<int64_t>() + 2;
    }
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
        {"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {0, 2}}};
    data = "xx" + data;
    if (header.dump().size() % 2 == 0) header["__metadata__"]["pad"] = "";
    if (header.dump().size() % 2 == 0) header["__metadata__"]["pad"] = "1";
    ASSERT_EQ(header.dump().size() % 2, 1u);
  });
  EXPECT_EQ(LastLogits(*Load(folder), tokens), plain);
}

TEST_F(DecoderTest, TakesATiedHeadOnlyIfItIsTheEmbedding) {
  const ModelFolder folder("llama-gqa-tied");
  folder.EditTensors([](json& header, std::string& data) {
    header["lm_head.weight"] = header["model.embed_tokens.weight"];
    const int64_t begin = header["lm_head.weight"]["data_offsets"][0];
    const int64_t end = header["lm_head.weight"]["data_offsets"][1];
    header["lm_head.weight"]["data_offsets"] = {data.size(), data.size() + (end - begin)};
    data += data.substr(begin, end - begin);
  });
  Load(folder);
  folder.EditTensors([](json&, std::string& data) { data.back() = static_cast<char>(data.back() ^ 1); });
  EXPECT_EQ(MessageFor(folder), folder.path() +
                                    ": tie_word_embeddings is true, but \"lm_head.weight\" differs from "
                                    "\"model.embed_tokens.weight\"");
}

TEST_F(DecoderTest, WeightBytesAndDigestAreThoseOfTheFolder) {
  const ModelFolder folder("llama-mha");
  const auto decoder = Load(folder);
  EXPECT_EQ(decoder->weight_bytes(), decoder->config().parameters() * 4);
  EXPECT_EQ(decoder->weights_digest().size(), 32u);
  const ModelFolder same("llama-mha");
  EXPECT_EQ(Load(same)->weights_digest(), decoder->weights_digest());
}

TEST_P(DecoderNumbersTest, KvInBf16ChangesLittleKeysAndValuesApart) {
  const ModelFolder folder("llama-bias");
  const auto decoder = Load(folder);
  const auto tokens = RandomTokens(60, decoder->config().vocabulary, 2);
  const auto exact = LastLogits(*decoder, tokens);
  using tensor::DType;
  const auto worst = [&](DType keys, DType values) {
    const auto logits = LastLogits(*decoder, tokens, keys, values);
    float worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::abs(logits[i] - exact[i]));
    return worst;
  };
  // A bf16 value is off by at most 2^-9 of itself; logits here are of the order of 10.
  for (const auto& [keys, values] :
       {std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kF32, DType::kBF16},
        std::pair{DType::kBF16, DType::kBF16}}) {
    EXPECT_GT(worst(keys, values), 1e-4f);
    EXPECT_LT(worst(keys, values), 0.5f);
  }
}

// Several sequences at different stages in one batch, logits of some rows only.
struct Lane {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int64_t done = 0;
};

TEST_P(DecoderNumbersTest, ARowDependsOnNothingButItself) {
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  for (const char* name : {"llama-mha", "mistral-window", "qwen2-window", "qwen3-window", "qwen3-moe",
                           "qwen2-moe", "mixtral", "olmoe", "glm4-moe", "gpt-oss"}) {
    SCOPED_TRACE(testing::Message() << name << ", seed " << kSeed);
    const ModelFolder folder(name);
    const auto decoder = Load(folder);
    const int64_t vocabulary = decoder->config().vocabulary;
    auto store = kv::KvStore::Create(decoder->LayoutFor(tensor::DType::kF32, tensor::DType::kBF16), 64);
    ASSERT_TRUE(store.ok()) << store.status();
    std::vector<BlockId> free;
    for (uint32_t id = 0; id < 64; ++id) free.emplace_back(id);
    std::shuffle(free.begin(), free.end(), random);
    std::vector<Lane> lanes(5);
    for (size_t l = 0; l < lanes.size(); ++l) {
      lanes[l].tokens = RandomTokens(20 + 13 * static_cast<int64_t>(l), vocabulary, static_cast<uint32_t>(l));
      for (int64_t b = BlocksFor(static_cast<int64_t>(lanes[l].tokens.size())); b > 0; --b) {
        lanes[l].blocks.push_back(free.back());
        free.pop_back();
      }
    }
    std::vector<std::vector<float>> last(lanes.size());
    while (std::ranges::any_of(lanes, [](const Lane& lane) { return lane.done < std::ssize(lane.tokens); })) {
      std::vector<TokenId> tokens;
      std::vector<kernels::SequenceRows> sequences;
      std::vector<int64_t> logit_rows;
      std::vector<size_t> finished;
      std::vector<size_t> order = {0, 1, 2, 3, 4};
      std::shuffle(order.begin(), order.end(), random);
      for (size_t l : order) {
        Lane& lane = lanes[l];
        const auto left = static_cast<int64_t>(lane.tokens.size()) - lane.done;
        const auto rows = std::min<int64_t>(left, std::uniform_int_distribution<int64_t>(0, 17)(random));
        if (rows == 0) continue;
        sequences.push_back({.first_row = static_cast<int64_t>(tokens.size()),
                             .rows = rows,
                             .first_position = lane.done,
                             .blocks = lane.blocks});
        tokens.insert(tokens.end(), lane.tokens.begin() + lane.done, lane.tokens.begin() + lane.done + rows);
        lane.done += rows;
        if (rows == left) {
          logit_rows.push_back(static_cast<int64_t>(tokens.size()) - 1);
          finished.push_back(l);
        }
      }
      std::vector<float> logits(static_cast<size_t>(std::ssize(logit_rows) * vocabulary));
      decoder->Forward({tokens, sequences, logit_rows}, *store, logits, kIgnoreLayers);
      for (size_t i = 0; i < finished.size(); ++i) {
        last[finished[i]].assign(logits.begin() + static_cast<int64_t>(i) * vocabulary,
                                 logits.begin() + static_cast<int64_t>(i + 1) * vocabulary);
      }
    }
    for (size_t l = 0; l < lanes.size(); ++l) {
      EXPECT_EQ(last[l], LastLogits(*decoder, lanes[l].tokens, tensor::DType::kF32, tensor::DType::kBF16))
          << "lane " << l;
    }
  }
}

TEST_P(DecoderNumbersTest, ReportsEachLayerOnceItsKvIsStored) {
  const ModelFolder folder("qwen2-window");
  const auto decoder = Load(folder);
  auto store = kv::KvStore::Create(decoder->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 2);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto tokens = RandomTokens(16, decoder->config().vocabulary, 3);
  const BlockId block(1);
  const kernels::SequenceRows sequence{.rows = 16, .blocks = std::span(&block, 1)};
  const auto written = [&](int layer) {
    const auto bytes = store->layers(block, layer, 1);
    return std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{0}; });
  };
  int next = 0;
  // No logits wanted: the whole of the KV, and nothing after it.
  decoder->Forward({tokens, std::span(&sequence, 1), {}}, *store, {}, [&](int layer) {
    EXPECT_EQ(layer, next++);
    EXPECT_TRUE(written(layer));
    if (layer + 1 < decoder->config().layers) {
      EXPECT_FALSE(written(layer + 1));
    }
  });
  EXPECT_EQ(next, 3);
  decoder->Forward({}, *store, {}, [](int) { FAIL() << "an empty batch has no KV"; });
}

}  // namespace
}  // namespace baton::model
