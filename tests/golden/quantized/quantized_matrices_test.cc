// Matrices as public tools store them, against the numbers that those tools read back (make_goldens.py).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "engine/model/checkpoint.h"
#include "engine/model/safetensors.h"
#include "engine/model/stored_matrix.h"
#include "engine/model/stored_quantization.h"
#include "nlohmann/json.hpp"
#include "text/config/quantization.h"

namespace baton::model {
namespace {

struct Case {
  std::string name;
  WeightPrecision kept;  // what the kernels get
};

class QuantizedMatricesTest : public testing::TestWithParam<Case> {
 protected:
  QuantizedMatricesTest()
      : folder_(std::string(BATON_SOURCE_DIR) + "/tests/golden/quantized/data/" + GetParam().name) {}
  const std::string folder_;
};

TEST_P(QuantizedMatricesTest, HaveTheNumbersThatTheirToolsRead) {
  const auto config = QuantizationConfig::Load(folder_);
  const auto checkpoint = Checkpoint::Open(folder_);
  const auto expected = SafetensorsFile::Open(folder_ + "/expected.safetensors");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(expected->tensors().size(), 2u);
  const MatrixReader reader(*checkpoint, *config);
  size_t used = 0;
  for (const StoredTensor& wanted : expected->tensors()) {
    const std::string name = wanted.name + ".weight";
    const int64_t rows = wanted.shape[0], cols = wanted.shape[1];
    used += reader.TensorsOf(name).size();
    // All rows, and some: as of a rank.
    for (const Range own : {Range{0, rows}, Range{rows / 3, rows / 2}}) {
      const auto matrix = reader.Read(name, rows, cols, own);
      ASSERT_TRUE(matrix.ok()) << matrix.status();
      ASSERT_EQ(matrix->view.rows, own.count);
      EXPECT_EQ(PrecisionOf(matrix->view), GetParam().kept);
      for (int64_t r = 0; r < own.count; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const float number =
              tensor::ValueAt(wanted.bytes.data(), wanted.dtype(), (own.begin + r) * cols + c);
          // One multiplication each.
          ASSERT_EQ(kernels::ValueAt(matrix->view, r, c), number) << wanted.name << " " << r << ", " << c;
        }
      }
      const Range some = {cols / 4, cols / 2};
      const ConvertedMatrix cut = Columns(*reader.Read(name, rows, cols, own), some);
      for (int64_t r = 0; r < own.count; ++r) {
        for (int64_t c = 0; c < some.count; ++c) {
          ASSERT_EQ(kernels::ValueAt(cut.view, r, c), kernels::ValueAt(matrix->view, r, some.begin + c));
        }
      }
    }
    // Another shape than the config's is refused, with the name of a tensor.
    const absl::Status other = reader.Read(name, rows + 8, cols, {0, 1}).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(other.message()).find("tensor \"" + wanted.name + "."), std::string::npos) << other;
  }
  EXPECT_EQ(used, checkpoint->tensors().size()) << "a tensor is of no use";
}

// The folder with other bytes in model.safetensors. Removed at the end.
class Copy {
 public:
  Copy(const std::string& folder, const std::string& bytes, const nlohmann::json& quantization = {})
      : path_(testing::TempDir() + "/quantized-" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
    auto config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
    if (!quantization.is_null()) config["quantization_config"].update(quantization);
    std::ofstream(path_ + "/config.json") << config;
    std::ofstream(path_ + "/model.safetensors", std::ios::binary) << bytes;
  }
  ~Copy() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

std::string BytesOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_P(QuantizedMatricesTest, AMissingTensorIsNamed) {
  std::string bytes = BytesOf(folder_ + "/model.safetensors");
  // The scales under another name of the same length.
  for (const std::string word : {"weight_scale", "scales"}) {
    if (const size_t at = bytes.find("a." + word); at != std::string::npos) {
      bytes.replace(at + 2, 1, "x");
      break;
    }
  }
  const Copy copy(folder_, bytes);
  const auto config = QuantizationConfig::Load(copy.path());
  const auto checkpoint = Checkpoint::Open(copy.path());
  ASSERT_TRUE(config.ok() && checkpoint.ok()) << checkpoint.status();
  const auto expected = SafetensorsFile::Open(folder_ + "/expected.safetensors");
  for (const StoredTensor& wanted : expected->tensors()) {
    if (wanted.name != "a") continue;
    const absl::Status status = MatrixReader(*checkpoint, *config)
                                    .Read("a.weight", wanted.shape[0], wanted.shape[1], {0, 1})
                                    .status();
    EXPECT_NE(std::string(status.message()).find("is missing, which its quantization needs"),
              std::string::npos)
        << status;
  }
}

// Experts as gpt-oss has them, every scale and pair of values, against transformers' own reading
// (../models/make_goldens.py): output features are columns there, gate and up in turn.
TEST(Mxfp4Test, IsWhatTransformersReads) {
  const std::string folder = std::string(BATON_SOURCE_DIR) + "/tests/golden/models/data/mxfp4";
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const StoredTensor& expected = *checkpoint->Find("expected");
  const int64_t experts = expected.shape[0], cols = expected.shape[1], features = expected.shape[2];
  const MatrixReader reader(*checkpoint, {.method = QuantizationConfig::Method::kMxfp4},
                            static_cast<int>(experts));
  int64_t seen = 0;
  for (int64_t e = 0; e < experts; ++e) {
    for (const char* half : {"gate_proj", "up_proj"}) {
      const std::string name = "model.layers.0.mlp.experts." + std::to_string(e) + "." + half + ".weight";
      EXPECT_EQ(reader.TensorsOf(name).size(), 2u);
      for (const Range own : {Range{0, features / 2}, Range{1, 2}}) {
        const auto matrix = reader.Read(name, features / 2, cols, own);
        ASSERT_TRUE(matrix.ok()) << matrix.status();
        ASSERT_EQ(matrix->view.dtype, tensor::DType::kBF16);
        for (int64_t r = 0; r < own.count; ++r) {
          const int64_t feature = 2 * (own.begin + r) + (half[0] == 'u' ? 1 : 0);
          for (int64_t c = 0; c < cols; ++c, ++seen) {
            uint16_t found, wanted;
            std::memcpy(&found, matrix->values.data() + 2 * (r * cols + c), 2);
            std::memcpy(&wanted, expected.bytes.data() + 2 * ((e * cols + c) * features + feature), 2);
            ASSERT_EQ(found, wanted) << "expert " << e << " " << half << " " << r << ", " << c;
          }
        }
      }
      const absl::Status other = reader.Read(name, features / 2 + 1, cols, {0, 1}).status();
      EXPECT_NE(std::string(other.message()).find("gate_up_proj_blocks\" has shape"), std::string::npos)
          << other;
    }
  }
  EXPECT_GT(seen, 10000);
}

// Symmetric GPTQ as some tools write it: zeros of the second format, and a config.json that says the first.
class ZerosOfGptqTest : public testing::TestWithParam<int> {
 protected:
  // A folder that tools wrote, with this byte in all words of its zeros.
  std::string BytesWith(char zeros) const {
    std::string bytes = BytesOf(folder_ + "/model.safetensors");
    const auto checkpoint = Checkpoint::Open(folder_);
    const size_t data = bytes.size() - static_cast<size_t>(checkpoint->bytes());
    const auto header = nlohmann::json::parse(bytes.substr(8, data - 8));
    for (const auto& [name, tensor] : header.items()) {
      if (!name.ends_with(".qzeros")) continue;
      const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(data + begin), end - begin, zeros);
    }
    return bytes;
  }
  // Numbers of matrix "a" where config.json says this.
  std::vector<float> Numbers(const std::string& bytes, const char* format, bool symmetric,
                             std::string* contradiction = nullptr) const {
    const Copy copy(folder_, bytes, {{"checkpoint_format", format}, {"sym", symmetric}});
    const auto checkpoint = Checkpoint::Open(copy.path());
    const auto config = LoadQuantization(copy.path(), *checkpoint);
    EXPECT_TRUE(config.ok()) << config.status();
    if (contradiction != nullptr) *contradiction = config->Contradiction();
    const auto expected = SafetensorsFile::Open(folder_ + "/expected.safetensors");
    const StoredTensor& first = expected->tensors().front();
    const auto matrix =
        MatrixReader(*checkpoint, *config)
            .Read(first.name + ".weight", first.shape[0], first.shape[1], {0, first.shape[0]});
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    std::vector<float> numbers;
    for (int64_t r = 0; r < first.shape[0]; ++r) {
      for (int64_t c = 0; c < first.shape[1]; ++c) numbers.push_back(kernels::ValueAt(matrix->view, r, c));
    }
    return numbers;
  }

  const std::string folder_ = std::string(BATON_SOURCE_DIR) + "/tests/golden/quantized/data/" +
                              (GetParam() == 4 ? "gptq" : "gptq-8-bits");
  const char middle_ = static_cast<char>(GetParam() == 4 ? 0x88 : 0x80);
  const char less_one_ = static_cast<char>(GetParam() == 4 ? 0x77 : 0x7F);
};

TEST_P(ZerosOfGptqTest, SayWhichFormatASymmetricFolderIsOf) {
  std::string contradiction;
  const std::vector<float> right = Numbers(BytesWith(less_one_), "gptq", true, &contradiction);
  EXPECT_EQ(contradiction, "");
  EXPECT_EQ(Numbers(BytesWith(middle_), "gptq_v2", true, &contradiction), right);
  EXPECT_EQ(contradiction, "");
  EXPECT_EQ(Numbers(BytesWith(middle_), "gptq", true, &contradiction), right);
  EXPECT_EQ(
      contradiction,
      "config.json says checkpoint_format \"gptq\", and all zeros are stored as \"gptq_v2\" has them (" +
          std::to_string(1 << (GetParam() - 1)) + "): they are read so");
}

TEST_P(ZerosOfGptqTest, SayNothingWhereTheyMayBeAny) {
  const std::vector<float> right = Numbers(BytesWith(less_one_), "gptq", true);
  std::string contradiction;
  EXPECT_NE(Numbers(BytesWith(middle_), "gptq", false, &contradiction), right) << "not symmetric";
  EXPECT_EQ(contradiction, "");
  // One other zero in the last of the folder's tensors.
  std::string bytes = BytesWith(middle_);
  const size_t at = bytes.rfind(std::string(8, middle_));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = less_one_;
  EXPECT_NE(Numbers(bytes, "gptq", true, &contradiction), right);
  EXPECT_EQ(contradiction, "");
}

INSTANTIATE_TEST_SUITE_P(Bits, ZerosOfGptqTest, testing::Values(4, 8));

TEST_P(QuantizedMatricesTest, DamagedFilesAreReadOrRefused) {
  constexpr uint32_t kSeed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const std::string bytes = BytesOf(folder_ + "/model.safetensors");
  const auto config = QuantizationConfig::Load(folder_);
  const auto expected = SafetensorsFile::Open(folder_ + "/expected.safetensors");
  ASSERT_TRUE(config.ok() && expected.ok());
  int refused = 0, read = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::string damaged = bytes;
    // In the header, where names, types and shapes are, as often as in the rest.
    const size_t end = trial % 2 == 0 ? std::min<size_t>(600, bytes.size()) : bytes.size();
    for (int i = 0; i < 3; ++i)
      damaged[8 + random() % (end - 8)] = static_cast<char>(trial % 4 < 2 ? '0' + random() % 10 : random());
    const Copy copy(folder_, damaged);
    const auto checkpoint = Checkpoint::Open(copy.path());
    if (!checkpoint.ok()) {
      ++refused;
      continue;
    }
    const MatrixReader reader(*checkpoint, *config);
    for (const StoredTensor& wanted : expected->tensors()) {
      const std::string name = wanted.name + ".weight";
      if (reader.TensorsOf(name).empty()) continue;
      const auto matrix = reader.Read(name, wanted.shape[0], wanted.shape[1], {0, wanted.shape[0]});
      matrix.ok() ? ++read : ++refused;
      EXPECT_TRUE(matrix.ok() || !matrix.status().message().empty());
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, QuantizedMatricesTest,
    testing::Values(
        Case{"ct-int8-channel", WeightPrecision::kInt8},
        Case{"ct-int8-tensor-zero", WeightPrecision::kStored},
        Case{"ct-int4-group", WeightPrecision::kStored}, Case{"ct-int4-group-zero", WeightPrecision::kStored},
        Case{"ct-int4-channel", WeightPrecision::kStored}, Case{"ct-int8-packed", WeightPrecision::kStored},
        Case{"ct-fp8-channel", WeightPrecision::kStored}, Case{"ct-fp8-tensor", WeightPrecision::kStored},
        Case{"fp8-block", WeightPrecision::kStored}, Case{"gptq", WeightPrecision::kStored},
        Case{"gptq-desc-act", WeightPrecision::kStored}, Case{"gptq-v2", WeightPrecision::kStored},
        Case{"gptq-8-bits", WeightPrecision::kStored}, Case{"awq", WeightPrecision::kStored}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::ranges::replace(name, '-', '_');
      return name;
    });

}  // namespace
}  // namespace baton::model
