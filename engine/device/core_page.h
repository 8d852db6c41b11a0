// CorePage: the memory that the members of a core table share, at the start of its file, and the bytes of the
// file that they lock. A lock belongs to the open file of a member (fcntl's F_OFD_SETLK), so the kernel takes
// it back when the member's process ends, whatever ends it. Nothing is ever waited for.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "engine/device/core_table.h"

namespace baton::device {

struct CorePage {
  static constexpr uint32_t kMagic = 0xC03E5001;

  struct Member {
    // Twice the number of times that a process has joined, plus 1 while that process works.
    std::atomic<uint64_t> state;
    CoreHome home;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  uint32_t magic;
  int32_t cores;
  int32_t members;
  Member member[CoreTable::kMostMembers];
};

// Locked by the member that has borrowed the core.
constexpr off_t CoreByte(int core) { return core; }
// Locked by the process that is the member.
constexpr off_t PresenceByte(int member) { return CoreTable::kMostCores + member; }

inline struct flock ByteLock(off_t byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// False if another open file has locked the byte.
inline bool TryLock(int fd, off_t byte) {
  struct flock lock = ByteLock(byte, F_WRLCK);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}
inline void Unlock(int fd, off_t byte) {
  struct flock lock = ByteLock(byte, F_UNLCK);
  fcntl(fd, F_OFD_SETLK, &lock);
}
// True if another open file than this has locked the byte.
inline bool LockedElsewhere(int fd, off_t byte) {
  struct flock lock = ByteLock(byte, F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace baton::device
