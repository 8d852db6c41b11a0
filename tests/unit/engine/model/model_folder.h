// ModelFolder: a private copy of a golden model that a test may spoil. Removed at the end.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace baton::model {

// A safetensors file with this header and data, its length field right.
std::string SafetensorsBytes(const std::string& header, std::string_view data);

class ModelFolder {
 public:
  // `golden` is a folder of tests/golden/models/data.
  explicit ModelFolder(const std::string& golden);
  ~ModelFolder();
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string path() const { return path_; }
  std::string Read(const std::string& file) const;
  void Write(const std::string& file, std::string_view bytes) const;
  void Remove(const std::string& file) const;
  void EditJson(const std::string& file, const std::function<void(nlohmann::json&)>& edit) const;
  void EditConfig(const std::function<void(nlohmann::json&)>& edit) const { EditJson("config.json", edit); }
  // Parses the header of model.safetensors, lets `edit` change header and data, and writes both back.
  void EditTensors(const std::function<void(nlohmann::json& header, std::string& data)>& edit) const;

 private:
  std::filesystem::path path_;
};

}  // namespace baton::model
