// The file of packed experts: what was written is read back; whatever is wrong with it is an error that says
// so, and a disk that is full leaves nothing behind.
#include "engine/model/expert_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/check.h"

namespace baton::model {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ExpertFileTest : public testing::Test {
 protected:
  ExpertFileTest() {
    std::string pattern = fs::temp_directory_path() / "baton-experts-XXXXXX";
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    fingerprint_.fill(7);
    weights_.fill(9);
  }
  ~ExpertFileTest() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ / "experts"; }
  static std::vector<std::byte> Image(int expert) {
    std::vector<std::byte> image(static_cast<size_t>(3000 + 700 * expert));
    for (size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(expert) * 7);
    }
    return image;
  }
  absl::Status Write() const {
    const auto writer = ExpertFileWriter::Create(path(), fingerprint_);
    if (!writer.ok()) return writer.status();
    for (const int expert : {2, 0, 1}) {
      const absl::Status status = (*writer)->Append({5, expert}, Image(expert));
      if (!status.ok()) return status;
    }
    return (*writer)->Finish(weights_);
  }
  std::string Bytes() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Replace(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }
  absl::Status Opened() const { return ExpertFile::Open(path(), fingerprint_).status(); }
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  Sha256Digest fingerprint_{}, weights_{};
};

TEST_F(ExpertFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Files(), 1u);
  auto file = ExpertFile::Open(path(), fingerprint_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->index().size(), 3u);
  EXPECT_EQ((*file)->weights(), weights_);
  for (const auto& [id, extent] : (*file)->index()) EXPECT_EQ(extent.offset % kFarPage, 0);
  ExpertIndex index = (*file)->index();
  const auto store = ExpertStore::Create(*std::move(file), std::move(index), 2 * 2 * kFarPage, 2);
  ASSERT_TRUE(store.ok()) << store.status();
  for (const int expert : {0, 1, 2, 0, 2}) {
    const std::vector<ExpertId> ids = {{5, expert}};
    const auto held = (*store)->Hold(ids);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_TRUE(std::ranges::equal(held->front(), Image(expert)));
    (*store)->Release();
  }
}

TEST_F(ExpertFileTest, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(std::string(Opened().message()), HasSubstr("`baton model pack` makes it"));
  ASSERT_TRUE(Write().ok());
  const std::string good = Bytes();
  const auto message = [&](const std::string& bytes) {
    Replace(bytes);
    return std::string(Opened().message());
  };
  EXPECT_EQ(message(good), "");
  EXPECT_THAT(message(""), HasSubstr("is no file of packed experts"));
  EXPECT_THAT(message("x" + good.substr(1)), HasSubstr("is no file of packed experts"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("has not the size that its header says"));
  EXPECT_THAT(message(good + "x"), HasSubstr("has not the size that its header says"));
  Replace(good);
  Sha256Digest other = fingerprint_;
  other[0] ^= 1;
  const auto file = ExpertFile::Open(path(), other);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("of another model, or with other --weights"));
  // Every bit of header and index.
  std::vector<size_t> places;
  for (size_t i = 0; i < 96; ++i) places.push_back(i);
  for (size_t i = good.size() - 3 * 32; i < good.size(); ++i) places.push_back(i);
  for (const size_t i : places) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    EXPECT_NE(message(bad), "") << "byte " << i;
  }
}

TEST_F(ExpertFileTest, AFileThatIsDamagedWhileItIsInUseIsAnErrorAndNoExpert) {
  ASSERT_TRUE(Write().ok());
  const std::string good = Bytes();
  auto file = ExpertFile::Open(path(), fingerprint_);
  ASSERT_TRUE(file.ok()) << file.status();
  ExpertIndex index = (*file)->index();
  const auto offset = static_cast<size_t>(index.at({5, 1}).offset);
  const auto store = *ExpertStore::Create(*std::move(file), std::move(index), 3 * 2 * kFarPage, 1);
  const std::vector<ExpertId> first = {{5, 0}}, second = {{5, 1}};
  std::string bad = good;
  bad[offset + 100] ^= 4;
  Replace(bad);
  EXPECT_TRUE(store->Hold(first).ok());
  store->Release();
  EXPECT_EQ(store->Hold(second).status().code(), absl::StatusCode::kDataLoss);
  fs::resize_file(path(), offset + 10);
  EXPECT_EQ(store->Hold(second).status().code(), absl::StatusCode::kDataLoss);
  // Another file under its name is not the one that is open.
  fs::remove(path());
  Replace("another");
  EXPECT_EQ(store->Hold(second).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ExpertFileTest, AFullDiskIsAnErrorAndLeavesNothing) {
  // Bytes that a file of this process may have, as if the disk had no more.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t room : {rlim_t{0}, rlim_t{4096}, rlim_t{4097}, rlim_t{9000}, rlim_t{20480}}) {
    const rlimit little = {.rlim_cur = room, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    const absl::Status status = Write();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << room << ": " << status;
    EXPECT_EQ(Files(), 0u);
  }
  // An earlier file stays.
  Replace("earlier");
  const rlimit little = {.rlim_cur = 9000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_FALSE(Write().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(Bytes(), "earlier");
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(ExpertFileWriter::Create(folder_ / "none" / "experts", fingerprint_).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton::model
