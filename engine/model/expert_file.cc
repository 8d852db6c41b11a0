#include "engine/model/expert_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"

namespace baton::model {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'B', 'A', 'T', 'O', 'N', 'E', 'X', 'P'};
constexpr uint32_t kExpertFileVersion = 1;
constexpr uint32_t kMostExperts = 1 << 20;

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kExpertFileVersion;
  uint32_t experts = 0;
  int64_t index_offset = 0;  // the index ends with the file
  Sha256Digest fingerprint{};
  Sha256Digest weights{};
  uint32_t index_crc = 0;
  uint32_t crc = 0;  // of what comes before it
};
static_assert(sizeof(FileHeader) == 96);

struct IndexEntry {
  int32_t layer = 0;
  int32_t expert = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  uint32_t crc = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(IndexEntry) == 32);

int64_t RoundToPage(int64_t bytes) { return (bytes + kFarPage - 1) / kFarPage * kFarPage; }
uint32_t CrcOf(const FileHeader& header) {
  return Crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, crc)));
}
std::string Reason(int error) { return std::generic_category().message(error); }

absl::Status ReadExactly(int file, int64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = pread(file, to.data(), to.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::UnavailableError(Reason(errno));
    if (got == 0) return absl::DataLossError("the file ends too early");
    to = to.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

// The header and the index of an open file of `size` bytes.
absl::StatusOr<ExpertIndex> ReadIndex(int file, int64_t size, const Sha256Digest& fingerprint,
                                      FileHeader& header) {
  if (size < kFarPage) return absl::InvalidArgumentError("is no file of packed experts");
  BATON_RETURN_IF_ERROR(ReadExactly(file, 0, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kMagic) return absl::InvalidArgumentError("is no file of packed experts");
  if (header.crc != CrcOf(header)) return absl::DataLossError("its header is damaged");
  if (header.version != kExpertFileVersion) {
    return absl::FailedPreconditionError(
        fmt::format("is of version {}, and this program reads {}", header.version, kExpertFileVersion));
  }
  if (header.fingerprint != fingerprint) {
    return absl::FailedPreconditionError("was packed of another model, or with other --weights");
  }
  const auto index_bytes = static_cast<int64_t>(sizeof(IndexEntry)) * header.experts;
  if (header.experts > kMostExperts || header.index_offset < kFarPage ||
      header.index_offset % kFarPage != 0 || header.index_offset != size - index_bytes) {
    return absl::DataLossError("has not the size that its header says");
  }
  std::vector<IndexEntry> entries(header.experts);
  BATON_RETURN_IF_ERROR(ReadExactly(file, header.index_offset, std::as_writable_bytes(std::span(entries))));
  if (Crc32c(std::as_bytes(std::span(entries))) != header.index_crc) {
    return absl::DataLossError("its index is damaged");
  }
  ExpertIndex index;
  for (const IndexEntry& entry : entries) {
    const ExpertExtent extent = {.offset = entry.offset, .bytes = entry.bytes, .crc = entry.crc};
    if (entry.offset < kFarPage || entry.offset % kFarPage != 0 || entry.offset > header.index_offset ||
        entry.bytes < 1 || entry.bytes > header.index_offset - entry.offset ||
        !index.emplace(ExpertId{entry.layer, entry.expert}, extent).second) {
      return absl::DataLossError("its index names what can't be");
    }
  }
  return index;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertFile>> ExpertFile::Open(const std::string& path,
                                                             const Sha256Digest& fingerprint) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return absl::UnavailableError(
        fmt::format("{}: can't be opened: {}; `baton model pack` makes it", path, Reason(errno)));
  }
  struct stat about {};
  FileHeader header;
  absl::StatusOr<ExpertIndex> index = absl::InvalidArgumentError("is no file of packed experts");
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
    index = ReadIndex(file, about.st_size, fingerprint, header);
  }
  if (!index.ok()) {
    close(file);
    return absl::Status(index.status().code(),
                        fmt::format("{}: {}: pack the experts again (baton model pack)", path,
                                    std::string(index.status().message())));
  }
  // Past the page cache, which would hold experts beyond those that may be resident. Where the file system
  // can't do that it costs memory of the page cache, and nothing else.
  (void)fcntl(file, F_SETFL, O_DIRECT);
  auto made = std::unique_ptr<ExpertFile>(new ExpertFile(path, file));
  made->index_ = *std::move(index);
  made->weights_ = header.weights;
  return made;
}

ExpertFile::~ExpertFile() { close(file_); }

absl::Status ExpertFile::Read(int64_t offset, std::span<std::byte> to) {
  return ReadExactly(file_, offset, to);
}

absl::StatusOr<std::unique_ptr<ExpertFileWriter>> ExpertFileWriter::Create(const std::string& path,
                                                                           const Sha256Digest& fingerprint) {
  std::string temporary = path + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) return absl::UnavailableError(fmt::format("{}: can't be written: {}", path, Reason(errno)));
  auto writer = std::unique_ptr<ExpertFileWriter>(new ExpertFileWriter(path, temporary, file, fingerprint));
  if (fchmod(file, 0644) != 0) return writer->Failed(errno);
  return writer;
}

ExpertFileWriter::~ExpertFileWriter() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

absl::Status ExpertFileWriter::Failed(int error) const {
  const std::string text =
      fmt::format("{}: can't be written: {}; nothing is left of it", path_, Reason(error));
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

absl::Status ExpertFileWriter::Write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed(written == 0 ? ENOSPC : errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status ExpertFileWriter::Append(ExpertId id, std::span<const std::byte> image) {
  const ExpertExtent extent = {.offset = at_, .bytes = std::ssize(image), .crc = Crc32c(image)};
  BATON_CHECK(!image.empty() && index_.emplace(id, extent).second) << " an expert twice";
  BATON_RETURN_IF_ERROR(Write(at_, image));
  at_ += RoundToPage(extent.bytes);
  return absl::OkStatus();
}

absl::Status ExpertFileWriter::Finish(const Sha256Digest& weights) {
  std::vector<IndexEntry> entries;
  for (const auto& [id, extent] : index_) {
    entries.push_back({.layer = id.layer,
                       .expert = id.expert,
                       .offset = extent.offset,
                       .bytes = extent.bytes,
                       .crc = extent.crc});
  }
  FileHeader header = {.experts = static_cast<uint32_t>(entries.size()),
                       .index_offset = at_,
                       .fingerprint = fingerprint_,
                       .weights = weights,
                       .index_crc = Crc32c(std::as_bytes(std::span(entries)))};
  header.crc = CrcOf(header);
  BATON_RETURN_IF_ERROR(Write(at_, std::as_bytes(std::span(entries))));
  BATON_RETURN_IF_ERROR(Write(0, std::as_bytes(std::span(&header, 1))));
  if (fsync(file_) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(errno);
  at_ += std::ssize(entries) * static_cast<int64_t>(sizeof(IndexEntry));
  close(std::exchange(file_, -1));
  // The name outlives a power failure, too.
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int folder = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    (void)fsync(folder);
    close(folder);
  }
  return absl::OkStatus();
}

}  // namespace baton::model
