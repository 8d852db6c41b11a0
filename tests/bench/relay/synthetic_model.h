// A model folder with random BF16 weights, large enough that its weights don't fit in any cache: for speed,
// not for sense.
#pragma once

#include <filesystem>

namespace baton::bench {

// A temporary folder that goes with the object.
class SyntheticModel {
 public:
  // About 190 million parameters, 370 MB.
  SyntheticModel();
  ~SyntheticModel();
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace baton::bench
