// A model folder with random BF16 weights, large enough that its weights don't fit in any cache: for speed,
// not for sense.
#pragma once

#include <filesystem>

namespace baton::bench {

// A temporary folder that goes with the object.
class SyntheticModel {
 public:
  // 152 million parameters, 304 MB, or 391 million, 782 MB.
  enum Size { k150M, k390M };
  explicit SyntheticModel(Size size = k150M);
  ~SyntheticModel();
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace baton::bench
