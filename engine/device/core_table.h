// CoreTable: which cores of a machine are whose, for the workers that one process starts there. Each member
// owns some cores, which it may use at any time, and may borrow those whose owners rest (core_share.h). The
// table is an anonymous file in memory: it is gone with the last process that has it open, however that one
// ends. Of the process that starts the workers; constant once it is made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::device {

// Cores that a member owns: `count` from number `first` on. Members may own the same cores.
struct CoreHome {
  int first = 0;
  int count = 1;
  // While an urgent member works, the others borrow nothing: what lies idle is for urgent ones.
  bool urgent = false;

  bool operator==(const CoreHome&) const = default;
};

class CoreTable {
 public:
  static constexpr int kMostCores = 1024, kMostMembers = 128;

  // `cores` in 1 .. kMostCores, at most kMostMembers homes within them. UNAVAILABLE if the system gives no
  // such file.
  static absl::StatusOr<CoreTable> Create(int cores, std::span<const CoreHome> homes);

  CoreTable(CoreTable&& other) noexcept;
  CoreTable& operator=(CoreTable&&) = delete;
  ~CoreTable();

  // The argument of CoreShare::Join for member `index`, in any process of the same user, while this table
  // lives.
  std::string NameOf(int index) const;

 private:
  explicit CoreTable(int fd) : fd_(fd) {}

  int fd_;  // -1: moved away
};

}  // namespace baton::device
