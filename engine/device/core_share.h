// CoreShare: the cores that one worker of a machine computes on, among others that do the same. It owns some
// (its home) and borrows those whose owners rest; it gives a borrowed core back as soon as an owner works
// again, which never waits for that. A core is no more than the right to run a thread: nobody is bound to a
// processor, and a core that is still in use when its owner returns only means that two threads share it for
// as long as a task takes. What a member that was killed held is free again: see core_page.h.
//
// Work, Rest and Borrow: one thread at a time. Keep: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/device/core_table.h"

namespace baton::device {

struct CorePage;

class CoreShare {
 public:
  // By a name of CoreTable::NameOf. INVALID_ARGUMENT: not such a name, or no such member; UNAVAILABLE: the
  // table can't be opened; ALREADY_EXISTS: another process is this member.
  static absl::StatusOr<std::unique_ptr<CoreShare>> Join(const std::string& name);
  // Rests, and leaves.
  ~CoreShare();
  CoreShare(const CoreShare&) = delete;
  CoreShare& operator=(const CoreShare&) = delete;

  // Cores that are this member's own, at least 1.
  int home() const { return home_; }
  // Cores that are not.
  int foreign() const { return static_cast<int>(foreign_.size()); }

  // Before each step: this member uses its cores, so nobody else borrows them. It looks for members that have
  // ended without a word.
  void Work();
  // There is nothing to compute for now: others may borrow, and get back what this one has borrowed.
  void Rest();

  // Borrows foreign core `i`. False if an owner works or another member has borrowed it; a core that another
  // member has is not asked for again before the next Work.
  bool Borrow(int i);
  // True if core `i` is borrowed and its owners still rest; otherwise gives it back.
  bool Keep(int i);

 private:
  struct Foreign {
    int core = 0;
    // Members that must rest while this one uses the core.
    std::vector<const std::atomic<uint64_t>*> before;
    std::atomic<bool> borrowed{false};  // written under changing_
    bool refused = false;               // since the last Work
  };
  CoreShare(int fd, CorePage& page, int member);
  static bool Free(const Foreign& core);
  void GiveBack(Foreign& core) ABSL_LOCKS_EXCLUDED(changing_);

  const int fd_;
  CorePage& page_;
  const int member_;
  const uint64_t joined_;  // the state of this member when it rests
  int home_ = 0;
  std::vector<Foreign> foreign_;
  absl::Mutex changing_;  // of what is borrowed, together with the locks of the file
};

}  // namespace baton::device
