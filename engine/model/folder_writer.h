// Helpers for commands that write a model folder from another one: the folder itself, files that are whole or
// not there, and copies of unchanged files. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/stored_tensor.h"
#include "nlohmann/json.hpp"

namespace baton::model {

// A file that is written from its beginning to its end; it is removed unless Close succeeded.
class OutputFile {
 public:
  explicit OutputFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {}
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // UNAVAILABLE names the path.
  absl::Status Write(std::span<const std::byte> bytes);
  absl::Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  absl::Status Close();

 private:
  absl::Status Failed() const;

  const std::string path_;
  std::FILE* file_;
};

// The header of a safetensors file, in the order in which its tensors' bytes will follow.
class SafetensorsHeader {
 public:
  // `type`: not kBlocks.
  void Add(const std::string& name, StoredType type, const std::vector<int64_t>& shape);
  // With the length in front of it, padded.
  std::string Bytes() const;

 private:
  nlohmann::ordered_json json_ = {{"__metadata__", {{"format", "pt"}}}};
  int64_t at_ = 0;
};

// A new folder, or an empty one. ALREADY_EXISTS if there is something in it.
absl::Status MakeTarget(const std::string& target);
// All files of `source` but its configuration and weights.
absl::Status CopyOthers(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace baton::model
