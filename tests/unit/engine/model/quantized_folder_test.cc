#include "engine/model/quantized_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/decoder.h"
#include "engine/model/measure_columns.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/summary.h"
#include "engine/model/weights.h"
#include "tests/unit/engine/model/model_folder.h"
#include "text/config/quantization.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

class QuantizedFolderTest : public testing::Test {
 protected:
  QuantizedFolderTest() { std::filesystem::remove_all(target_); }
  ~QuantizedFolderTest() override { std::filesystem::remove_all(target_); }

  absl::Status Write(const std::string& source, WeightPrecision precision, bool portable = true) {
    return WriteQuantized(
        {.source = source, .target = target_, .precision = precision, .portable = portable, .threads = 2});
  }
  absl::Status WriteCalibrated(const std::string& source, bool portable, int threads = 2) {
    return WriteQuantized(
        {.source = source,
         .target = target_,
         .precision = WeightPrecision::kInt4,
         .portable = portable,
         .calibration = {Prompt(), {TokenId(7), TokenId(2)}, std::vector<TokenId>(17, TokenId(3))},
         .threads = threads});
  }
  static std::vector<TokenId> Prompt() {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 5) % 100);
    return tokens;
  }
  // The bytes of the target's tensors, by name.
  std::map<std::string, std::vector<std::byte>> TensorsOfTarget() const {
    std::map<std::string, std::vector<std::byte>> made;
    const auto checkpoint = Checkpoint::Open(target_).value();
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      made[name].assign(tensor->bytes.begin(), tensor->bytes.end());
    }
    return made;
  }
  // Some columns of what goes into attention and the feed-forward block dwarf the others, so that they have
  // exponents.
  static void WidenColumns(const ModelFolder& folder) {
    folder.EditTensors([](nlohmann::json& header, std::string& data) {
      for (const auto& [name, tensor] : header.items()) {
        if (!name.ends_with("layernorm.weight")) continue;
        for (size_t at = tensor["data_offsets"][0]; at < tensor["data_offsets"][1]; at += 7 * sizeof(float)) {
          float value;
          std::memcpy(&value, data.data() + at, sizeof value);
          value *= 100;
          std::memcpy(data.data() + at, &value, sizeof value);
        }
      }
    });
  }
  // A neuron that gives next to nothing, whose scale is tiny.
  static void ShrinkRow(const ModelFolder& folder) {
    folder.EditTensors([](nlohmann::json& header, std::string& data) {
      const auto& tensor = header["model.layers.1.mlp.down_proj.weight"];
      const size_t begin = tensor["data_offsets"][0];
      for (int64_t c = 0; c < tensor["shape"][1].get<int64_t>(); ++c) {
        float value;
        std::memcpy(&value, data.data() + begin + static_cast<size_t>(c) * sizeof value, sizeof value);
        value *= 0x1p-92f;
        std::memcpy(data.data() + begin + static_cast<size_t>(c) * sizeof value, &value, sizeof value);
      }
    });
  }
  // The logits of a prompt's last position, by the cpu backend.
  static std::vector<float> Logits(const std::string& folder, WeightPrecision precision,
                                   int64_t* bytes = nullptr, std::string* numerics = nullptr) {
    ColumnExponents exponents;
    if (MakesIntegers(precision)) {
      exponents = MeasureColumns(folder, **kernels::MakeCpuKernels({.threads = 1})).value();
    }
    const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
    const auto decoder = Decoder::Load(folder, *kernels, {.precision = precision, .exponents = exponents});
    if (numerics != nullptr) *numerics = kernels->numerics();
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    if (!decoder.ok()) return {};
    if (bytes != nullptr) *bytes = (*decoder)->weight_bytes();
    auto store = kv::KvStore::Create((*decoder)->LayoutFor(tensor::DType::kF32, tensor::DType::kF32), 4);
    const std::vector<TokenId> tokens = Prompt();
    std::vector<BlockId> blocks = {BlockId(2), BlockId(0), BlockId(3)};
    const kernels::SequenceRows sequence{.rows = 40, .blocks = blocks};
    const int64_t last = 39;
    std::vector<float> logits(static_cast<size_t>((*decoder)->config().vocabulary));
    (*decoder)->Forward({tokens, std::span(&sequence, 1), std::span(&last, 1)}, *store, logits, [](int) {});
    return logits;
  }

  // Every matrix of the target is what a quantizer makes of the source's.
  void ExpectNumbersOf(const std::string& source, WeightPrecision precision) {
    const auto original = Checkpoint::Open(source), made = Checkpoint::Open(target_);
    const auto config = ModelConfig::Load(source);
    const auto quantization = QuantizationConfig::Load(target_);
    ASSERT_TRUE(original.ok() && made.ok() && config.ok() && quantization.ok());
    const MatrixReader reader(*made, *quantization);
    Quantizer quantizer(precision, 1);
    for (const MatrixShape& shape : MatricesOf(*original, *config)) {
      if (PrecisionFor(precision, shape.name) == WeightPrecision::kStored) continue;
      const StoredTensor& tensor = *original->Find(shape.name);
      const auto read = reader.Read(shape.name, shape.rows, shape.cols, {0, shape.rows});
      const auto expected = quantizer.Convert(
          shape.name,
          {.data = tensor.bytes.data(), .dtype = tensor.dtype(), .rows = shape.rows, .cols = shape.cols},
          {0, shape.cols});
      ASSERT_TRUE(read.ok() && expected.ok()) << read.status() << expected.status();
      for (int64_t r = 0; r < shape.rows; ++r) {
        for (int64_t c = 0; c < shape.cols; ++c) {
          ASSERT_EQ(kernels::ValueAt(read->view, r, c), kernels::ValueAt(expected->view, r, c))
              << shape.name << " " << r << ", " << c;
        }
      }
    }
  }

  const std::string target_ = testing::TempDir() + "/quantized-folder-" + std::to_string(getpid());
};

// As the kernels would convert it at load, to the bit.
TEST_F(QuantizedFolderTest, IsWhatAConversionAtLoadMakes) {
  for (const char* model : {"llama-mha", "llama-gqa-tied", "llama-bias", "qwen3-window", "phi3-long",
                            "ernie4-5-defaults", "mixtral", "llama-heads-of-20"}) {
    for (const WeightPrecision precision : {WeightPrecision::kInt8, WeightPrecision::kInt4}) {
      SCOPED_TRACE(std::string(model) + " " + std::string(Name(precision)));
      std::filesystem::remove_all(target_);
      const ModelFolder source(model);
      if (std::string(model) == "llama-mha") WidenColumns(source);
      if (std::string(model) == "llama-bias") ShrinkRow(source);
      const absl::Status written = Write(source.path(), precision, /*portable=*/false);
      ASSERT_TRUE(written.ok()) << written;
      int64_t at_load = 0, stored = 0;
      std::string numerics, of_folder;
      const std::vector<float> logits = Logits(source.path(), precision, &at_load, &numerics);
      EXPECT_EQ(Logits(target_, WeightPrecision::kStored, &stored, &of_folder), logits);
      EXPECT_EQ(stored, at_load);
      EXPECT_EQ(of_folder, numerics);
      EXPECT_THAT(of_folder, HasSubstr(std::string(kTransformedIntegers)));
      EXPECT_EQ(Logits(target_, precision), logits) << "nothing is converted a second time";
      const auto summary = ModelSummary::Load(target_);
      ASSERT_TRUE(summary.ok()) << summary.status();
      EXPECT_TRUE(summary->loads.ok()) << summary->loads;
      EXPECT_EQ(summary->quantization, "baton, cpu-i8/2");
      if (std::string(model) == "llama-mha") {
        const auto made = Checkpoint::Open(target_);
        const auto& exponents = made->Find("model.layers.0.mlp.up_proj.weight_exponents")->bytes;
        EXPECT_TRUE(std::ranges::any_of(exponents, [](std::byte e) { return e != std::byte{0}; }));
      }
      EXPECT_EQ(summary->WeightBytes(WeightPrecision::kStored), summary->WeightBytes(precision));
    }
  }
}

// Every other precision is made of the numbers that the folder stands for.
TEST_F(QuantizedFolderTest, TransformedColumnsConvertToOtherPrecisions) {
  const ModelFolder source("llama-mha");
  WidenColumns(source);
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8, /*portable=*/false).ok());
  const std::vector<float> expected = Logits(target_, WeightPrecision::kStored);
  for (const WeightPrecision precision :
       {WeightPrecision::kF32, WeightPrecision::kBF16, WeightPrecision::kInt4}) {
    const std::vector<float> other = Logits(target_, precision);
    ASSERT_EQ(other.size(), expected.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < other.size(); ++i) {
      difference += std::abs(other[i] - expected[i]);
      size += std::abs(expected[i]);
    }
    EXPECT_GT(difference, 0);
    EXPECT_LT(difference, (precision == WeightPrecision::kInt4 ? 0.3 : 0.05) * size) << Name(precision);
  }
}

TEST_F(QuantizedFolderTest, RefusesTransformsThatNobodyWrites) {
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  const auto refusal = [&](const std::function<void(nlohmann::json&, std::string&)>& edit) {
    std::filesystem::remove_all(target_);
    const ModelFolder source("llama-mha");
    EXPECT_TRUE(Write(source.path(), WeightPrecision::kInt8, /*portable=*/false).ok());
    std::filesystem::copy(
        target_, source.path(),
        std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
    source.EditTensors(edit);
    return std::string(Decoder::Load(source.path(), *kernels, {}).status().message());
  };
  const std::string k = "model.layers.0.self_attn.k_proj.weight_exponents";
  EXPECT_THAT(refusal([&](nlohmann::json& header, std::string&) {
                header["elsewhere"] = header[k];
                header.erase(k);
              }),
              HasSubstr(k + "\" [1, 64] is missing"));
  EXPECT_THAT(refusal([&](nlohmann::json& header, std::string&) {
                header[k]["shape"] = {2, 32};
              }),
              HasSubstr("has shape [2, 32], not [1, 64]"));
  EXPECT_THAT(
      refusal([&](nlohmann::json& header, std::string& data) {
        data[header[k]["data_offsets"][0].get<size_t>()] += 1;
      }),
      HasSubstr("its columns are transformed unlike those of \"model.layers.0.self_attn.q_proj.weight\""));
}

// A rank has half of the columns: those that it would have converted.
TEST_F(QuantizedFolderTest, RanksHaveTheirColumns) {
  const ModelFolder source("llama-mha");
  WidenColumns(source);
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt4, /*portable=*/false).ok());
  const auto original = Checkpoint::Open(source.path()), made = Checkpoint::Open(target_);
  const auto config = ModelConfig::Load(source.path());
  const auto quantization = QuantizationConfig::Load(target_);
  ASSERT_TRUE(original.ok() && made.ok() && config.ok() && quantization.ok());
  Quantizer quantizer(WeightPrecision::kInt4, 1);
  quantizer.TransformColumns(
      MeasureColumns(source.path(), **kernels::MakeCpuKernels({.threads = 1})).value());
  int cut = 0;
  for (const auto& [name, rows, cols, block] : MatricesOf(*original, *config)) {
    if (!name.ends_with("o_proj.weight") && !name.ends_with("down_proj.weight")) continue;
    const Range half = {cols / 2, cols / 2};
    const ConvertedMatrix own =
        Columns(MatrixReader(*made, *quantization).Read(name, rows, cols, {0, rows}, block).value(), half);
    const StoredTensor& tensor = *original->Find(name);
    const ConvertedMatrix expected =
        quantizer
            .Convert(name, {.data = tensor.bytes.data(), .dtype = tensor.dtype(), .rows = rows, .cols = cols},
                     half, block)
            .value();
    EXPECT_GT(block, 1);
    std::vector<float> got(static_cast<size_t>(half.count)), wanted(got.size());
    for (int64_t r = 0; r < rows; ++r) {
      kernels::ReadRow(own.view, r, got);
      kernels::ReadRow(expected.view, r, wanted);
      ASSERT_EQ(got, wanted) << name << " " << r;
    }
    ++cut;
  }
  EXPECT_EQ(cut, 4);
}

TEST_F(QuantizedFolderTest, RefusesExponentsThatNobodyWrites) {
  const ModelFolder source("llama-mha");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8, /*portable=*/false).ok());
  const auto made = Checkpoint::Open(target_);
  ASSERT_TRUE(made.ok());
  constexpr char kName[] = "model.layers.1.self_attn.o_proj.weight_exponents";
  ASSERT_NE(made->Find(kName), nullptr);
  EXPECT_EQ(made->Find(kName)->shape, (std::vector<int64_t>{4, 16})) << "blocks of columns within a head";
  // The bytes lie in the file as the checkpoint maps them.
  std::string file;
  {
    std::ifstream in(target_ + "/model.safetensors", std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto& bytes = made->Find(kName)->bytes;
  const std::string pattern(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t header = *reinterpret_cast<const uint64_t*>(file.data());
  const auto offsets = nlohmann::json::parse(file.substr(8, header))[kName]["data_offsets"];
  const size_t at = 8 + header + offsets[0].get<size_t>();
  ASSERT_EQ(file.substr(at, bytes.size()), pattern);
  file[at + 3] = 100;
  std::ofstream(target_ + "/model.safetensors", std::ios::binary | std::ios::trunc) << file;
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  EXPECT_THAT(std::string(Decoder::Load(target_, *kernels, {}).status().message()),
              HasSubstr("weight_exponents\" has 100 for column 3: at most 8"));
}

// Weights of one byte are signed: 255 would be read as -1.
TEST_F(QuantizedFolderTest, RefusesWeightsOfUnsignedBytes) {
  const ModelFolder source("llama-mha");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8).ok());
  std::string file;
  {
    std::ifstream in(target_ + "/model.safetensors", std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }
  const size_t at = file.find("\"I8\"", file.find("o_proj.weight\""));
  ASSERT_NE(at, std::string::npos);
  file[at + 1] = 'U';
  std::ofstream(target_ + "/model.safetensors", std::ios::binary | std::ios::trunc) << file;
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  EXPECT_THAT(std::string(Decoder::Load(target_, *kernels, {}).status().message()),
              HasSubstr("o_proj.weight\" is stored as u8, which is not known there"));
}

TEST_F(QuantizedFolderTest, SaysOfWhatClassItIs) {
  const ModelFolder source("llama-mha");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8, /*portable=*/false).ok());
  auto json = nlohmann::json::parse(std::ifstream(target_ + "/config.json"));
  EXPECT_EQ(json["quantization_config"],
            (nlohmann::json{{"quant_method", "baton"}, {"numerics", "cpu-i8/2"}}));
  json["quantization_config"]["numerics"] = "cpu-i8/3";
  std::ofstream(target_ + "/config.json", std::ios::trunc) << json;
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  const auto other = Decoder::Load(target_, *kernels, {});
  EXPECT_THAT(
      std::string(other.status().message()),
      HasSubstr("\"numerics\" is \"cpu-i8/3\", and this version has cpu-i8/2: quantize the original again"));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(target_));
}

// Its columns are not transformed, which other programs would not undo: it has the numbers of a quantizer
// that does not, and is no folder that a conversion at load could be told from.
TEST_F(QuantizedFolderTest, HoldsTheNumbersOfQuantizingWithoutATransform) {
  for (const char* model :
       {"llama-mha", "llama-gqa-tied", "llama-bias", "qwen3-window", "mixtral", "qwen2-moe"}) {
    for (const WeightPrecision precision : {WeightPrecision::kInt8, WeightPrecision::kInt4}) {
      // Its experts of width 24 are no whole groups of 4 bits.
      if (precision == WeightPrecision::kInt4 && std::string(model) == "qwen2-moe") continue;
      SCOPED_TRACE(std::string(model) + " " + std::string(Name(precision)));
      std::filesystem::remove_all(target_);
      const ModelFolder source(model);
      ASSERT_TRUE(Write(source.path(), precision).ok()) << Write(source.path(), precision);
      int64_t at_load = 0, stored = 0;
      Logits(source.path(), precision, &at_load);
      const std::vector<float> logits = Logits(target_, WeightPrecision::kStored, &stored);
      EXPECT_EQ(stored, at_load);
      EXPECT_EQ(Logits(target_, precision), logits);
      EXPECT_NE(Logits(source.path(), WeightPrecision::kStored), logits);
      ExpectNumbersOf(source.path(), precision);
      const auto summary = ModelSummary::Load(target_);
      ASSERT_TRUE(summary.ok()) << summary.status();
      EXPECT_TRUE(summary->loads.ok()) << summary->loads;
      EXPECT_EQ(summary->quantization, "compressed-tensors");
      EXPECT_EQ(summary->WeightBytes(WeightPrecision::kStored), summary->WeightBytes(precision));
      EXPECT_EQ(summary->stored.contains("int4"), precision == WeightPrecision::kInt4);
    }
  }
}

TEST_F(QuantizedFolderTest, WhatIsQuantizedConvertsToOtherPrecisions) {
  const ModelFolder source("llama-mha");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt4).ok());
  // Every int4 number is one of int8 up to rounding of the scales: logits stay close.
  const std::vector<float> expected = Logits(target_, WeightPrecision::kStored),
                           bytes = Logits(target_, WeightPrecision::kInt8);
  ASSERT_EQ(bytes.size(), expected.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    difference += std::abs(bytes[i] - expected[i]);
    size += std::abs(expected[i]);
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.05 * size);
}

TEST_F(QuantizedFolderTest, CopiesTheOtherFilesAndSaysWhatItIs) {
  const ModelFolder source("llama-sharded");
  source.Write("tokenizer.json", "{\"x\":1}");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt4).ok());
  std::ifstream tokenizer(target_ + "/tokenizer.json");
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(tokenizer)), {}), "{\"x\":1}");
  EXPECT_FALSE(std::filesystem::exists(target_ + "/model.safetensors.index.json"));
  const auto json = nlohmann::json::parse(std::ifstream(target_ + "/config.json"));
  const auto& quantization = json["quantization_config"];
  EXPECT_EQ(quantization["quant_method"], "compressed-tensors");
  EXPECT_EQ(quantization["format"], "mixed-precision");
  EXPECT_EQ(quantization["config_groups"].size(), 3u);
  EXPECT_EQ(json["hidden_size"], 64);
}

// Others round the input of a module whose group says so: that of the embeddings is token ids. With tied
// weights the head is a module of its own there, with scales of its own.
TEST_F(QuantizedFolderTest, SaysOfAllButTheEmbeddingsThatTheirInputIsRounded) {
  for (const char* model : {"llama-mha", "llama-gqa-tied"}) {
    SCOPED_TRACE(model);
    const ModelFolder source(model);
    std::filesystem::remove_all(target_);
    ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8).ok());
    const auto json = nlohmann::json::parse(std::ifstream(target_ + "/config.json"));
    const auto& quantization = json["quantization_config"];
    EXPECT_EQ(quantization["format"], "int-quantized");
    std::map<std::string, bool> rounded;
    for (const auto& group : quantization["config_groups"]) {
      EXPECT_EQ(group["weights"]["num_bits"], 8);
      for (const auto& target : group["targets"]) rounded[target] = group.contains("input_activations");
    }
    EXPECT_EQ(rounded.size(), 9u);
    EXPECT_TRUE(rounded.contains("re:.*lm_head$"));
    for (const auto& [target, is_rounded] : rounded) {
      EXPECT_EQ(is_rounded, target != "re:.*embed_tokens$") << target;
    }
    const auto written = Checkpoint::Open(target_);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_NE(written->Find("lm_head.weight_scale"), nullptr);
    EXPECT_EQ(written->Find("lm_head.weight") == nullptr, json["tie_word_embeddings"].get<bool>());
  }
}

// Texts change the matrices of 4 bits alone, so that all products together lose less of them.
TEST_F(QuantizedFolderTest, CalibrationKeepsMoreOfItsTexts) {
  for (const bool portable : {false, true}) {
    double calibrated = 0, nearest = 0;
    for (const char* model : {"llama-mha", "llama-gqa-tied", "llama-bias", "qwen3-window", "phi3-long",
                              "ernie4-5-defaults", "olmo3", "granite", "llama-heads-of-20"}) {
      SCOPED_TRACE(model);
      const ModelFolder source(model);
      if (std::string(model) == "llama-mha") WidenColumns(source);
      const std::vector<float> logits = Logits(source.path(), WeightPrecision::kStored);
      const auto error = [&] {
        const std::vector<float> rounded = Logits(target_, WeightPrecision::kStored);
        double squares = 0, all = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
          squares += std::pow(double{rounded[i]} - logits[i], 2);
          all += std::pow(double{logits[i]}, 2);
        }
        return squares / all;
      };
      std::filesystem::remove_all(target_);
      ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt4, portable).ok());
      nearest += error();
      const auto before = TensorsOfTarget();
      std::filesystem::remove_all(target_);
      const absl::Status written = WriteCalibrated(source.path(), portable);
      ASSERT_TRUE(written.ok()) << written;
      calibrated += error();
      const auto after = TensorsOfTarget();
      ASSERT_EQ(after.size(), before.size());
      int changed = 0;
      for (const auto& [name, bytes] : after) {
        if (bytes == before.at(name)) continue;
        ++changed;
        const std::string matrix = name.substr(0, name.rfind(".weight")) + ".weight";
        EXPECT_EQ(PrecisionFor(WeightPrecision::kInt4, matrix), WeightPrecision::kInt4) << name;
      }
      EXPECT_GT(changed, 0);
      std::filesystem::remove_all(target_);
      ASSERT_TRUE(WriteCalibrated(source.path(), portable, /*threads=*/1).ok());
      EXPECT_EQ(TensorsOfTarget(), after) << "it depends on threads";
    }
    EXPECT_LT(calibrated, 0.8 * nearest) << portable;
  }
}

TEST_F(QuantizedFolderTest, RefusesTextsThatCantCalibrate) {
  const auto refusal = [&](const char* model, std::vector<std::vector<TokenId>> texts,
                           WeightPrecision precision = WeightPrecision::kInt4) {
    const ModelFolder source(model);
    const absl::Status status = WriteQuantized({.source = source.path(),
                                                .target = target_,
                                                .precision = precision,
                                                .calibration = std::move(texts)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(std::filesystem::exists(target_)) << "written: " << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("mixtral", {Prompt()}), HasSubstr("is a mixture of experts"));
  EXPECT_THAT(refusal("llama-mha", {std::vector<TokenId>(100000, TokenId(1))}),
              HasSubstr("a text of 100000 tokens is longer than the context"));
  EXPECT_THAT(refusal("llama-mha", {Prompt(), {TokenId(100000)}}), HasSubstr("the token 100000"));
  EXPECT_THAT(refusal("llama-mha", {Prompt(), {TokenId(-1)}}), HasSubstr("the token -1"));
  EXPECT_THAT(refusal("llama-mha", {Prompt(), {}}), HasSubstr("no tokens"));
  EXPECT_THAT(refusal("llama-mha", {Prompt()}, WeightPrecision::kInt8), HasSubstr("of 4 bits"));
}

TEST_F(QuantizedFolderTest, RefusesFusedExperts) {
  EXPECT_THAT(std::string(Write(ModelFolder("gpt-oss").path(), WeightPrecision::kInt8).message()),
              HasSubstr("keeps the experts of a layer in one tensor, for which no quantized folder is known: "
                        "convert them when they are loaded, by --weights int8"));
  EXPECT_FALSE(std::filesystem::exists(target_));
}

TEST_F(QuantizedFolderTest, RefusesWhatItCantWrite) {
  const ModelFolder source("llama-mha");
  ASSERT_TRUE(Write(source.path(), WeightPrecision::kInt8).ok());
  EXPECT_EQ(Write(source.path(), WeightPrecision::kInt8).code(), absl::StatusCode::kAlreadyExists);
  const std::string again = target_ + "-again";
  const absl::Status quantized = WriteQuantized({.source = target_, .target = again});
  EXPECT_THAT(std::string(quantized.message()), HasSubstr("is quantized already (compressed-tensors)"));
  EXPECT_FALSE(std::filesystem::exists(again));
  std::filesystem::remove_all(target_);
  source.EditTensors([](nlohmann::json& header, std::string& data) {
    const int64_t at = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0];
    data.replace(static_cast<size_t>(at), 4, std::string("\0\0\x80\x7F", 4));
  });
  const absl::Status infinite = Write(source.path(), WeightPrecision::kInt8);
  EXPECT_THAT(std::string(infinite.message()), HasSubstr("up_proj.weight\": row 0 holds a value"));
  EXPECT_FALSE(std::filesystem::exists(target_ + "/config.json"));
  EXPECT_FALSE(std::filesystem::exists(target_ + "/model.safetensors"));
}

TEST(QuantizationConfigTest, RefusesByNameWhatItDoesNotKnow) {
  const auto message = [](nlohmann::json quantization) {
    const auto config = QuantizationConfig::FromJson({{"quantization_config", std::move(quantization)}});
    return config.ok() ? std::string("ok") : std::string(config.status().message());
  };
  using nlohmann::json;
  EXPECT_THAT(message({{"quant_method", "bitsandbytes"}}), HasSubstr("\"quant_method\" is \"bitsandbytes\""));
  EXPECT_THAT(message(json::object()), HasSubstr("\"quant_method\""));
  EXPECT_THAT(message(json::array()), HasSubstr("is not an object"));
  json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  EXPECT_EQ(message(gptq), "ok");
  gptq["bits"] = 3;
  EXPECT_THAT(message(gptq), HasSubstr("\"bits\" is 3: known are 4 and 8"));
  gptq["bits"] = 4;
  gptq["dynamic"] = {{"-:.*down.*", json::object()}};
  EXPECT_THAT(message(gptq), HasSubstr("\"dynamic\" is set"));
  gptq["dynamic"] = json::object();
  gptq["checkpoint_format"] = "marlin";
  EXPECT_THAT(message(gptq), HasSubstr("\"checkpoint_format\" is \"marlin\""));
  json awq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "GEMM"}};
  EXPECT_EQ(message(awq), "ok");
  awq["version"] = "gemv";
  EXPECT_THAT(message(awq), HasSubstr("\"version\" is \"gemv\""));
  json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(message(fp8), "ok");
  fp8["weight_block_size"] = {128};
  EXPECT_THAT(message(fp8), HasSubstr("\"weight_block_size\" is not two numbers"));
  json group = {{"targets", {"Linear"}},
                {"weights", {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}}}};
  json tensors = {{"quant_method", "compressed-tensors"},
                  {"format", "pack-quantized"},
                  {"config_groups", {{"group_0", group}}}};
  EXPECT_EQ(message(tensors), "ok");
  tensors["config_groups"]["group_0"]["weights"]["num_bits"] = 3;
  EXPECT_THAT(message(tensors), HasSubstr("group_0: weights: field \"num_bits\" is 3"));
  tensors["config_groups"]["group_0"] = group;
  tensors["format"] = "nvfp4-pack-quantized";
  EXPECT_THAT(message(tensors), HasSubstr("\"format\" is \"nvfp4-pack-quantized\""));
  tensors["format"] = "pack-quantized";
  tensors["kv_cache_scheme"] = {{"num_bits", 8}};
  EXPECT_THAT(message(tensors), HasSubstr("\"kv_cache_scheme\" is set"));
}

using FolderJson = nlohmann::json;

// The projections of "llama-mha" in steps of 1/16, as numbers, or as symmetric GPTQ of 4 bits with zeros of
// the second format.
void WriteSixteenths(const ModelFolder& folder, bool gptq) {
  folder.EditTensors([&](FolderJson& header, std::string& data) {
    FolderJson new_header;
    std::string bytes;
    const auto add = [&](const std::string& name, const char* dtype, const FolderJson& shape,
                         const auto& values) {
      const size_t begin = bytes.size();
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
      new_header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
    };
    for (const auto& [name, tensor] : header.items()) {
      if (!tensor.contains("shape")) continue;
      const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      std::vector<float> values((end - begin) / sizeof(float));
      std::memcpy(values.data(), data.data() + begin, end - begin);
      if (!name.ends_with("_proj.weight")) {
        add(name, "F32", tensor["shape"], values);
        continue;
      }
      const size_t rows = tensor["shape"][0], cols = tensor["shape"][1];
      std::vector<uint32_t> words(cols / 8 * rows);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < cols; ++c) {
          float& value = values[r * cols + c];
          const auto level = static_cast<uint32_t>(std::clamp(std::round(value * 16) + 8, 0.0f, 15.0f));
          value = (static_cast<float>(level) - 8) / 16;
          words[c / 8 * rows + r] |= level << (c % 8 * 4);
        }
      }
      if (!gptq) {
        add(name, "F32", tensor["shape"], values);
        continue;
      }
      const std::string prefix = name.substr(0, name.size() - std::string("weight").size());
      add(prefix + "qweight", "I32", {cols / 8, rows}, words);
      add(prefix + "qzeros", "I32", {1, rows / 8}, std::vector<uint32_t>(rows / 8, 0x88888888));
      add(prefix + "scales", "F16", {1, rows}, std::vector<uint16_t>(rows, 0x2C00));  // 1/16
    }
    header = new_header;
    data = bytes;
  });
  if (!gptq) return;
  folder.EditConfig([](FolderJson& config) {
    config["quantization_config"] = {{"quant_method", "gptq"},
                                     {"bits", 4},
                                     {"group_size", -1},
                                     {"sym", true},
                                     {"checkpoint_format", "gptq"}};
  });
}

TEST_F(QuantizedFolderTest, GptqWithZerosOfTheSecondFormatUnderTheFirstOnesNameIsRight) {
  const ModelFolder plain("llama-mha"), quantized("llama-mha");
  WriteSixteenths(plain, /*gptq=*/false);
  WriteSixteenths(quantized, /*gptq=*/true);
  EXPECT_EQ(Logits(quantized.path(), WeightPrecision::kStored),
            Logits(plain.path(), WeightPrecision::kStored));
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  EXPECT_THAT((*Decoder::Load(quantized.path(), *kernels))->contradiction(), HasSubstr("\"gptq_v2\""));
  EXPECT_EQ((*Decoder::Load(plain.path(), *kernels))->contradiction(), "");
  const auto summary = ModelSummary::Load(quantized.path());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->loads.ok()) << summary->loads;
  EXPECT_EQ(summary->quantization, "gptq v2, 4 bits, a scale per row");
  EXPECT_THAT(summary->contradiction, HasSubstr("\"gptq_v2\""));
}

}  // namespace
}  // namespace baton::model
