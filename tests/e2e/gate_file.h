// GateFile: how many steps a worker may make, in a file that the test (gate.h) and the worker
// (gated_worker.h) have mapped. Any thread of any process.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "common/base/check.h"

namespace baton::e2e {

class GateFile {
 public:
  // In place of a number: as many as it likes.
  static constexpr int64_t kOpen = -1;

  // Maps the file, and with `make` makes it first, open. CHECK-fails if it can't.
  explicit GateFile(const std::string& path, bool make = false) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_TRUNC : 0), 0600);
    BATON_CHECK(fd >= 0) << "can't open " << path;
    BATON_CHECK(!make || ftruncate(fd, sizeof(int64_t)) == 0) << path;
    void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    BATON_CHECK(mapped != MAP_FAILED) << "can't map " << path;
    close(fd);
    steps_ = static_cast<int64_t*>(mapped);
    if (make) steps().store(kOpen);
  }
  ~GateFile() { munmap(steps_, sizeof(int64_t)); }
  GateFile(const GateFile&) = delete;
  GateFile& operator=(const GateFile&) = delete;

  std::atomic_ref<int64_t> steps() const { return std::atomic_ref<int64_t>(*steps_); }

 private:
  static_assert(std::atomic_ref<int64_t>::is_always_lock_free);  // or it would hold in one process only
  int64_t* steps_;
};

}  // namespace baton::e2e
