// The tiny tokenizers of tests/golden/text, and random draws with a printed seed, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/seed.h"
#include "text/tokenizer.h"

namespace baton::text {

inline const std::vector<std::string>& TokenizerKinds() {
  static const auto* kinds = new std::vector<std::string>{"llama3_like", "qwen_like", "llama2_like",
                                                          "metaspace_like", "wordpiece_like"};
  return *kinds;
}

inline std::string FolderOf(const std::string& kind) {
  return std::string(BATON_SOURCE_DIR) + "/tests/golden/text/tokenizers/" + kind;
}

inline std::shared_ptr<const Tokenizer> LoadKind(const std::string& kind) {
  auto tokenizer = Tokenizer::Load(FolderOf(kind));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// A folder of its own for each test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ =
        (std::filesystem::path(testing::TempDir()) / ("baton_text_" + std::to_string(std::random_device()())))
            .string();
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::mt19937_64 SeededEngine() {
  const uint64_t seed = TestSeed();
  std::cout << "seed " << seed << std::endl;
  testing::Test::RecordProperty("seed", std::to_string(seed));
  return std::mt19937_64(seed);
}

inline size_t Below(std::mt19937_64& engine, size_t limit) {
  return std::uniform_int_distribution<size_t>(0, limit - 1)(engine);
}

inline void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

// Any character, short ones more often.
inline uint32_t RandomCharacter(std::mt19937_64& engine) {
  constexpr uint32_t kLimits[] = {0x80, 0x800, 0xD800, 0x110000};
  while (true) {
    const auto code = static_cast<uint32_t>(Below(engine, kLimits[Below(engine, 4)]));
    if (code < 0xD800 || code > 0xDFFF) return code;
  }
}

inline std::string RandomText(std::mt19937_64& engine, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i)
    AppendUtf8(Below(engine, 5) == 0 ? ' ' : RandomCharacter(engine), &text);
  return text;
}

}  // namespace baton::text
