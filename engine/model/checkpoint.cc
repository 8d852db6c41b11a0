#include "engine/model/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "text/config/json_fields.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// tensor -> shard, as the index has it.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"weight_map\" is missing or not an object", path));
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    // A shard lies next to its index: a name that leads elsewhere is refused.
    if (!shard.is_string() || fs::path(shard.get<std::string>()).filename() != shard.get<std::string>() ||
        shard.get<std::string>().empty() || shard.get<std::string>() == "..") {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor \"{}\" lies in {}, which is not a file name", path, tensor, Shown(shard)));
    }
    shards[tensor] = shard.get<std::string>();
  }
  return shards;
}

// ", but NAME, which is not read", of a file or of shards in another format.
std::string OtherWeights(const fs::path& folder) {
  static constexpr const char* kOthers[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                            "consolidated.safetensors", "consolidated.00.pth"};
  for (const char* name : kOthers) {
    if (Exists(folder / name)) return fmt::format(", but {}, which is not read", name);
  }
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with("model-") && name.ends_with(".safetensors")) {
      return fmt::format(", but {}, one of several that {} would list", name, kIndex);
    }
  }
  return "";
}

void AddLength(Sha256& sha, uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  sha.Update(bytes);
}

}  // namespace

absl::Status Checkpoint::Add(const std::vector<StoredTensor>& tensors, const std::string& path) {
  for (const StoredTensor& tensor : tensors) {
    if (!tensors_.emplace(tensor.name, &tensor).second) {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor \"{}\" is in another shard too, or under another name", path, tensor.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  Checkpoint checkpoint;
  BATON_ASSIGN_OR_RETURN(checkpoint.gguf_, GgufTensors::OpenIfGguf(folder));
  if (checkpoint.gguf_.has_value()) {
    BATON_RETURN_IF_ERROR(checkpoint.Add(checkpoint.gguf_->tensors(), folder));
    return checkpoint;
  }
  const fs::path root(folder);
  if (Exists(root / kSingle)) {
    BATON_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(root / kSingle));
    checkpoint.files_.push_back(std::move(file));
    BATON_RETURN_IF_ERROR(checkpoint.Add(checkpoint.files_.front().tensors(), root / kSingle));
    return checkpoint;
  }
  if (!Exists(root / kIndex)) {
    return absl::NotFoundError(
        fmt::format("{}: neither {} nor {} is here{}; save the weights as safetensors (from_pretrained and "
                    "save_pretrained of transformers do), or name a GGUF file",
                    folder, kSingle, kIndex, OtherWeights(root)));
  }
  BATON_ASSIGN_OR_RETURN(const auto map, ReadIndex(root / kIndex));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  checkpoint.files_.reserve(shards.size());
  for (const std::string& shard : shards) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(root / shard);
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(
          fmt::format("{}: shard \"{}\" is missing, but {} names it", folder, shard, kIndex));
    }
    BATON_RETURN_IF_ERROR(file.status());
    for (const StoredTensor& tensor : file->tensors()) {
      const auto named = map.find(tensor.name);
      if (named == map.end() || named->second != shard) {
        return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" is not where {} has it",
                                                      (root / shard).string(), tensor.name, kIndex));
      }
    }
    checkpoint.files_.push_back(*std::move(file));
    BATON_RETURN_IF_ERROR(checkpoint.Add(checkpoint.files_.back().tensors(), root / shard));
  }
  for (const auto& [tensor, shard] : map) {
    if (checkpoint.Find(tensor) == nullptr) {
      return absl::InvalidArgumentError(fmt::format("{}: tensor \"{}\" is missing, but {} names it",
                                                    (root / shard).string(), tensor, kIndex));
    }
  }
  return checkpoint;
}

const StoredTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

int64_t Checkpoint::bytes() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += static_cast<int64_t>(tensor->bytes.size());
  return total;
}

std::string Checkpoint::Digest() const {
  Sha256 sha;
  for (const auto& [name, tensor] : tensors_) {
    AddLength(sha, name.size());
    sha.Update(name);
    const std::string dtype = tensor->TypeName();
    AddLength(sha, dtype.size());
    sha.Update(dtype);
    AddLength(sha, tensor->shape.size());
    for (int64_t extent : tensor->shape) AddLength(sha, static_cast<uint64_t>(extent));
    AddLength(sha, tensor->bytes.size());
    sha.Update(tensor->bytes);
  }
  const Sha256Digest digest = sha.Finish();
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace baton::model
