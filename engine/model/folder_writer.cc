#include "engine/model/folder_writer.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <functional>
#include <numeric>
#include <system_error>
#include <utility>

namespace baton::model {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

}  // namespace

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(path_.c_str());
}

absl::Status OutputFile::Write(std::span<const std::byte> bytes) {
  if (file_ == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return Failed();
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  if (file_ == nullptr || std::fflush(file_) != 0 || std::ferror(file_) != 0) return Failed();
  const int closed = std::fclose(std::exchange(file_, nullptr));
  return closed == 0 ? absl::OkStatus() : Failed();
}

absl::Status OutputFile::Failed() const {
  return absl::UnavailableError(
      fmt::format("{}: can't be written: {}", path_, std::generic_category().message(errno)));
}

void SafetensorsHeader::Add(const std::string& name, StoredType type, const std::vector<int64_t>& shape) {
  const int64_t bytes = std::accumulate(shape.begin(), shape.end(), SizeOf(type), std::multiplies());
  json_[name] = {{"dtype", SafetensorsName(type)}, {"shape", shape}, {"data_offsets", {at_, at_ + bytes}}};
  at_ += bytes;
}

std::string SafetensorsHeader::Bytes() const {
  std::string text = json_.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

absl::Status MakeTarget(const std::string& target) {
  std::error_code error;
  if (fs::exists(target, error) && !fs::is_empty(target, error)) {
    return absl::AlreadyExistsError(fmt::format("{}: is there already; name a new folder", target));
  }
  fs::create_directories(target, error);
  if (error) return absl::UnavailableError(fmt::format("{}: {}", target, error.message()));
  return absl::OkStatus();
}

absl::Status CopyOthers(const fs::path& source, const fs::path& target) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(source, error)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file() || name == "config.json" || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json")) {
      continue;
    }
    fs::copy_file(entry.path(), target / name, fs::copy_options::none, error);
    if (error)
      return absl::UnavailableError(fmt::format("{}: {}", (target / name).string(), error.message()));
  }
  return absl::OkStatus();
}

}  // namespace baton::model
