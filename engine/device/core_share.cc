#include "engine/device/core_share.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "engine/device/core_page.h"

namespace baton::device {
namespace {

bool Owns(const CoreHome& home, int core) { return core >= home.first && core < home.first + home.count; }

}  // namespace

absl::StatusOr<std::unique_ptr<CoreShare>> CoreShare::Join(const std::string& name) {
  const size_t colon = name.rfind(':');
  int member = -1;
  if (colon == std::string::npos || !absl::SimpleAtoi(name.substr(colon + 1), &member)) {
    return absl::InvalidArgumentError(fmt::format("{}: not the name of a share of cores", name));
  }
  const std::string file = name.substr(0, colon);
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(fmt::format("{}: {}", file, strerror(errno)));
  struct stat status;
  void* memory = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size == sizeof(CorePage)) {
    memory = mmap(nullptr, sizeof(CorePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  auto* page = static_cast<CorePage*>(memory);
  const auto refuse = [&](absl::Status why) {
    if (memory != MAP_FAILED) munmap(memory, sizeof(CorePage));
    close(fd);
    return why;
  };
  if (memory == MAP_FAILED || page->magic != CorePage::kMagic || member < 0 || member >= page->members) {
    return refuse(absl::InvalidArgumentError(fmt::format("{}: no table of cores with this member", name)));
  }
  if (!TryLock(fd, PresenceByte(member))) {
    return refuse(absl::AlreadyExistsError(fmt::format("{}: another process has this share of cores", name)));
  }
  return std::unique_ptr<CoreShare>(new CoreShare(fd, *page, member));
}

CoreShare::CoreShare(int fd, CorePage& page, int member)
    : fd_(fd),
      page_(page),
      member_(member),
      joined_(((page.member[member].state.load(std::memory_order_relaxed) >> 1) + 1) << 1) {
  // Nobody else writes this word but those who clear the last bit of the state that they have read.
  page_.member[member_].state.store(joined_, std::memory_order_relaxed);
  const CoreHome& own = page_.member[member_].home;
  home_ = own.count;
  foreign_ = std::vector<Foreign>(static_cast<size_t>(page_.cores - home_));
  auto next = foreign_.begin();
  for (int core = 0; core < page_.cores; ++core) {
    if (Owns(own, core)) continue;
    next->core = core;
    for (int m = 0; m < page_.members; ++m) {
      const CorePage::Member& other = page_.member[m];
      if (m != member_ && (Owns(other.home, core) || (other.home.urgent && !own.urgent))) {
        next->before.push_back(&other.state);
      }
    }
    ++next;
  }
}

CoreShare::~CoreShare() {
  Rest();
  munmap(&page_, sizeof(CorePage));
  close(fd_);  // and with it all locks
}

void CoreShare::Work() {
  page_.member[member_].state.store(joined_ | 1, std::memory_order_relaxed);
  for (int m = 0; m < page_.members; ++m) {
    std::atomic<uint64_t>& state = page_.member[m].state;
    uint64_t seen = state.load(std::memory_order_relaxed);
    if (m == member_ || (seen & 1) == 0 || LockedElsewhere(fd_, PresenceByte(m))) continue;
    // Its process is gone. Had a new one joined since, the state would be another.
    state.compare_exchange_strong(seen, seen & ~uint64_t{1}, std::memory_order_relaxed);
  }
  for (Foreign& core : foreign_) core.refused = false;
}

void CoreShare::Rest() {
  page_.member[member_].state.store(joined_, std::memory_order_relaxed);
  for (Foreign& core : foreign_) {
    if (core.borrowed.load(std::memory_order_relaxed)) GiveBack(core);
  }
}

bool CoreShare::Free(const Foreign& core) {
  for (const std::atomic<uint64_t>* state : core.before) {
    if ((state->load(std::memory_order_relaxed) & 1) != 0) return false;
  }
  return true;
}

bool CoreShare::Borrow(int i) {
  Foreign& core = foreign_[static_cast<size_t>(i)];
  if (core.borrowed.load(std::memory_order_relaxed)) return Keep(i);
  if (core.refused || !Free(core)) return false;
  absl::MutexLock lock(&changing_);
  if (!TryLock(fd_, CoreByte(core.core))) {
    core.refused = true;
    return false;
  }
  core.borrowed.store(true, std::memory_order_relaxed);
  return true;
}

bool CoreShare::Keep(int i) {
  Foreign& core = foreign_[static_cast<size_t>(i)];
  if (!core.borrowed.load(std::memory_order_relaxed)) return false;
  if (Free(core)) return true;
  GiveBack(core);
  return false;
}

void CoreShare::GiveBack(Foreign& core) {
  absl::MutexLock lock(&changing_);
  if (!core.borrowed.load(std::memory_order_relaxed)) return;
  core.borrowed.store(false, std::memory_order_relaxed);
  Unlock(fd_, CoreByte(core.core));
}

}  // namespace baton::device
