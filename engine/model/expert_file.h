// ExpertFile: the experts of a model in one file, in the form that the kernels read: what `baton model pack`
// writes and workers read a few experts of at a time. Made once; never changed.
//
//   file    := header, padded to a page   image, padded to pages, of each expert   index
//   image   := gate and up of the expert, padded to 64 bytes   down
//   index   := {layer, expert, offset, bytes, CRC-32C of the image} of each, by layer and expert
//
// Numbers are little-endian. The header has a fingerprint of the model's shape and the format, the digest of
// the weights (WeightsDigest), and checksums of itself and of the index. It is written under a temporary
// name, synced and renamed, so that a file under its own name is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "engine/model/expert_store.h"
#include "engine/model/far_memory.h"

namespace baton::model {

class ExpertFile final : public FarMemory {
 public:
  // INVALID_ARGUMENT: it is no such file. DATA_LOSS: it is damaged, or cut short. FAILED_PRECONDITION: it is
  // of another version, or not of `fingerprint`. UNAVAILABLE: it can't be read.
  static absl::StatusOr<std::unique_ptr<ExpertFile>> Open(const std::string& path,
                                                          const Sha256Digest& fingerprint);
  ~ExpertFile() override;
  ExpertFile(const ExpertFile&) = delete;
  ExpertFile& operator=(const ExpertFile&) = delete;

  const ExpertIndex& index() const { return index_; }
  // Digest of the weights that it was packed from.
  const Sha256Digest& weights() const { return weights_; }
  std::string name() const override { return path_; }
  absl::Status Read(int64_t offset, std::span<std::byte> to) override;

 private:
  ExpertFile(std::string path, int file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  const int file_;
  ExpertIndex index_;
  Sha256Digest weights_{};
};

// One thread.
class ExpertFileWriter {
 public:
  // Nothing is at `path` until Finish. UNAVAILABLE: it can't be written there.
  static absl::StatusOr<std::unique_ptr<ExpertFileWriter>> Create(const std::string& path,
                                                                  const Sha256Digest& fingerprint);
  // Removes what is not finished.
  ~ExpertFileWriter();
  ExpertFileWriter(const ExpertFileWriter&) = delete;
  ExpertFileWriter& operator=(const ExpertFileWriter&) = delete;

  // RESOURCE_EXHAUSTED: the disk is full; UNAVAILABLE otherwise. An expert comes once.
  absl::Status Append(ExpertId id, std::span<const std::byte> image);
  // Replaces a file that is there. `weights`: the digest of those that it was packed of.
  absl::Status Finish(const Sha256Digest& weights);
  int64_t bytes() const { return at_; }

 private:
  ExpertFileWriter(std::string path, std::string temporary, int file, const Sha256Digest& fingerprint)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file), fingerprint_(fingerprint) {}
  absl::Status Write(int64_t offset, std::span<const std::byte> bytes);
  absl::Status Failed(int error) const;

  const std::string path_, temporary_;
  int file_;  // -1: finished
  const Sha256Digest fingerprint_;
  ExpertIndex index_;
  int64_t at_ = kFarPage;
};

}  // namespace baton::model
