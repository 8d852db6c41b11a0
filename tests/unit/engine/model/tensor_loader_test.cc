#include "engine/model/tensor_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/model/quantized_folder.h"
#include "tests/unit/engine/model/model_folder.h"

namespace baton::model {
namespace {

using ::testing::HasSubstr;

// llama-sharded: a vocabulary of 150, 64 hidden, in float32.
class TensorLoaderTest : public ::testing::Test {
 protected:
  const std::string folder_ = BATON_SOURCE_DIR "/tests/golden/models/data/llama-sharded";
  const Checkpoint checkpoint_ = *Checkpoint::Open(folder_);
  const std::unique_ptr<kernels::Kernels> kernels_ = kernels::MakeReferenceKernels();
  TensorLoader loader_{folder_, checkpoint_, kernels_.get()};

  std::string MessageOf(const TensorPart& part, int64_t cols) {
    return std::string(loader_.Matrix({&part, 1}, cols, {0, cols}).status().message());
  }
};

TEST_F(TensorLoaderTest, ARankGetsItsRowsAndColumns) {
  const StoredTensor& stored = *checkpoint_.Find("lm_head.weight");
  const TensorPart part = {"lm_head.weight", 150, {10, 3}};
  const auto packed = loader_.Matrix({&part, 1}, 64, {32, 16});
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_EQ((*packed)->rows(), 3);
  ASSERT_EQ((*packed)->cols(), 16);
  const std::vector<TokenId> rows = {TokenId(0), TokenId(2)};
  std::vector<float> values(2 * 16);
  kernels_->Embed(**packed, rows, 0, {values.data(), 2, 16, 16});
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<size_t>(i)],
              tensor::ValueAt(stored.bytes.data(), stored.dtype(), 10 * 64 + 32 + i));
    EXPECT_EQ(values[static_cast<size_t>(16 + i)],
              tensor::ValueAt(stored.bytes.data(), stored.dtype(), 12 * 64 + 32 + i));
  }
}

// Gate is stored as int8, and up as numbers: both have to be of the same columns, or neither stays an
// integer.
TEST_F(TensorLoaderTest, BesideStoredIntegersColumnsAreNotTransformed) {
  const std::string gate = "model.layers.0.mlp.gate_proj.weight", up = "model.layers.0.mlp.up_proj.weight";
  const std::string target = ::testing::TempDir() + "/tensor-loader-" + std::to_string(getpid());
  const ModelFolder folder("llama-mha");
  const Checkpoint original = *Checkpoint::Open(folder.path());
  const StoredTensor& numbers = *original.Find(up);
  const std::string bytes(reinterpret_cast<const char*>(numbers.bytes.data()), numbers.bytes.size());
  ASSERT_EQ(numbers.type, StoredType::kF32);
  const std::vector<int64_t> shape = numbers.shape;
  ASSERT_TRUE(
      WriteQuantized(
          {.source = folder.path(), .target = target, .precision = WeightPrecision::kInt8, .portable = true})
          .ok());
  std::filesystem::copy(
      target, folder.path(),
      std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(target);
  folder.EditTensors([&](nlohmann::json& header, std::string& data) {
    for (const std::string& name : {up, up + "_scale"}) {
      header["elsewhere." + name] = header[name];
      header.erase(name);
    }
    header[up] = {
        {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  });
  const Checkpoint mixed = *Checkpoint::Open(folder.path());
  const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
  Quantizer quantizer(WeightPrecision::kInt8, 1);
  quantizer.TransformColumns();
  TensorLoader loader(folder.path(), mixed, kernels.get(), &quantizer,
                      *QuantizationConfig::Load(folder.path()));
  const TensorPart parts[] = {{gate, shape[0], {0, shape[0]}}, {up, shape[0], {0, shape[0]}}};
  const auto packed = loader.Matrix(parts, shape[1], {0, shape[1]}, kernels::TransformBlock(shape[1]));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_TRUE((*packed)->exact_sums());
  EXPECT_TRUE(kernels->numerics().ends_with("cpu-i8/1")) << kernels->numerics();
  EXPECT_TRUE(loader.converted());
  const auto alone =
      loader.Matrix({&parts[1], 1}, shape[1], {0, shape[1]}, kernels::TransformBlock(shape[1]));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(kernels->numerics().ends_with("cpu-i8/2")) << kernels->numerics();
}

// Matrices of bfloat16 are multiplied as such, with rounded activations; a router is not.
TEST_F(TensorLoaderTest, ProductsWithARouterStayFloat32) {
  const ModelFolder folder("mixtral");
  const Checkpoint stored = *Checkpoint::Open(folder.path());
  const std::string router = "model.layers.0.block_sparse_moe.gate.weight";
  ASSERT_EQ(stored.Find(router)->type, StoredType::kBF16);
  for (const WeightPrecision precision :
       {WeightPrecision::kStored, WeightPrecision::kF32, WeightPrecision::kBF16, WeightPrecision::kInt8}) {
    const auto kernels = *kernels::MakeCpuKernels({.threads = 1});
    Quantizer quantizer(precision, 1);
    TensorLoader loader(folder.path(), stored, kernels.get(), &quantizer);
    const std::string of_floats = kernels->numerics();
    const TensorPart part = {router, 4, {1, 2}};
    const auto packed = loader.Matrix({&part, 1}, 64, {0, 64});
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ(kernels->numerics(), of_floats) << Name(precision);
    const TokenId second(1);
    std::vector<float> values(64);
    kernels->Embed(**packed, {&second, 1}, 0, {values.data(), 1, 64, 64});
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(values[static_cast<size_t>(i)],
                tensor::ValueAt(stored.Find(router)->bytes.data(), tensor::DType::kBF16, 2 * 64 + i));
    }
  }
}

TEST_F(TensorLoaderTest, VectorsFollowOneAnother) {
  const StoredTensor& stored = *checkpoint_.Find("model.norm.weight");
  const TensorPart parts[] = {{"model.norm.weight", 64, {60, 4}}, {"model.norm.weight", 64, {0, 2}}};
  const auto values = loader_.Vector(parts);
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_EQ(values->view().size(), 6u);
  EXPECT_EQ(values->view()[0], tensor::ValueAt(stored.bytes.data(), stored.dtype(), 60));
  EXPECT_EQ(values->view()[5], tensor::ValueAt(stored.bytes.data(), stored.dtype(), 1));
}

TEST_F(TensorLoaderTest, RefusalsNameTheTensor) {
  EXPECT_EQ(MessageOf({"lm_head.bias", 150, {0, 150}}, 64),
            folder_ + ": tensor \"lm_head.bias\" [150, 64] is missing");
  EXPECT_EQ(MessageOf({"lm_head.weight", 151, {0, 151}}, 64),
            folder_ + ": tensor \"lm_head.weight\" has shape [150, 64], config.json asks for [151, 64]");
}

TEST_F(TensorLoaderTest, WhatWasNotTakenIsLeft) {
  TensorLoader checks(folder_, checkpoint_, nullptr);
  const ModelConfig config;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    EXPECT_THAT(std::string(checks.NothingLeft(config).message()), HasSubstr(name));
    const TensorPart part = {name, tensor->shape.front(), {0, 1}};
    if (tensor->shape.size() == 1) {
      const auto vector = checks.Vector({&part, 1});
      ASSERT_TRUE(vector.ok()) << vector.status();
      EXPECT_TRUE(vector->empty());
    } else {
      const auto matrix = checks.Matrix({&part, 1}, tensor->shape.back(), {0, 1});
      ASSERT_TRUE(matrix.ok()) << matrix.status();
      EXPECT_EQ(*matrix, nullptr);
    }
  }
  EXPECT_TRUE(checks.NothingLeft(config).ok());
}

}  // namespace
}  // namespace baton::model
