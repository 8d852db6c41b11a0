#include "text/config/model_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/model/checkpoint.h"
#include "tests/unit/engine/model/model_folder.h"
#include "text/config/config.h"

namespace baton::model {
namespace {

using testing::HasSubstr;

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\noid "
    "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n";

std::string Why(const std::string& path) { return std::string(CheckModelPath(path).message()); }

TEST(ModelPathTest, AFolderWithAConfigAndAGgufFileAreModels) {
  const ModelFolder folder("llama-mha");
  EXPECT_TRUE(CheckModelPath(folder.path()).ok());
  EXPECT_TRUE(CheckModelPath(folder.path() + "/").ok());
  folder.Write("small.gguf", "GGUF");
  EXPECT_TRUE(CheckModelPath(folder.path() + "/small.gguf").ok());
}

TEST(ModelPathTest, ANameIsToldHowItIsFetched) {
  EXPECT_TRUE(absl::IsNotFound(CheckModelPath("Qwen/Qwen3-0.6B")));
  EXPECT_THAT(Why("Qwen/Qwen3-0.6B"), HasSubstr("`baton model pull Qwen/Qwen3-0.6B` fetches"));
  EXPECT_THAT(Why("Qwen/Qwen3-0.6B"), HasSubstr("into the folder Qwen3-0.6B"));
  for (const char* none : {"/a/b", "./a/b", "../b", "a/b/c", "a/", "llama3", ""}) {
    EXPECT_THAT(Why(none), HasSubstr("there is no such file or folder")) << none;
  }
}

TEST(ModelPathTest, WhatIsThereInsteadIsNamed) {
  const ModelFolder folder("llama-mha");
  EXPECT_THAT(Why(folder.path() + "/config.json"), HasSubstr("neither a model's folder nor a GGUF file"));
  folder.Remove("config.json");
  EXPECT_THAT(Why(folder.path()), HasSubstr("it has no config.json"));
  folder.Write("params.json", "{}");
  EXPECT_THAT(Why(folder.path()), HasSubstr("the format of transformers"));
  std::filesystem::create_directory(folder.path() + "/snapshots");
  EXPECT_THAT(Why(folder.path()), HasSubstr("under its snapshots/"));
  folder.Write("adapter_config.json", "{}");
  EXPECT_THAT(Why(folder.path()), HasSubstr("an adapter"));
  folder.Write("b.gguf", "GGUF");
  folder.Write("a.gguf", "GGUF");
  EXPECT_THAT(Why(folder.path()), HasSubstr("name one of them, as " + folder.path() + "/a.gguf"));
}

TEST(ModelPathTest, PointersOfGitLfsAreNamed) {
  const ModelFolder folder("llama-mha");
  folder.Write("model.safetensors", kPointer);
  EXPECT_THAT(
      std::string(Checkpoint::Open(folder.path()).status().message()),
      HasSubstr("/model.safetensors: only a Git LFS pointer to the file is here: run `git lfs pull`"));
  folder.Write("small.gguf", kPointer);
  EXPECT_THAT(std::string(Checkpoint::Open(folder.path() + "/small.gguf").status().message()),
              HasSubstr("only a Git LFS pointer"));
  folder.Write("config.json", kPointer);
  EXPECT_THAT(std::string(ModelConfig::Load(folder.path()).status().message()),
              HasSubstr("only a Git LFS pointer"));
}

TEST(ModelPathTest, WeightsInOtherFormatsAreNamed) {
  const ModelFolder folder("llama-mha");
  folder.Remove("model.safetensors");
  const auto why = [&] { return std::string(Checkpoint::Open(folder.path()).status().message()); };
  folder.Write("model-00001-of-00002.safetensors", "");
  EXPECT_THAT(why(), HasSubstr("is here, but model-00001-of-00002.safetensors, one of several that "
                               "model.safetensors.index.json would list;"));
  folder.Write("pytorch_model.bin", "");
  EXPECT_THAT(
      why(), HasSubstr("is here, but pytorch_model.bin, which is not read; save the weights as safetensors"));
}

}  // namespace
}  // namespace baton::model
