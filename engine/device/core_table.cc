#include "engine/device/core_table.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "engine/device/core_page.h"

namespace baton::device {

absl::StatusOr<CoreTable> CoreTable::Create(int cores, std::span<const CoreHome> homes) {
  BATON_CHECK(cores >= 1 && cores <= kMostCores) << " cores " << cores;
  BATON_CHECK(homes.size() <= kMostMembers) << " members " << homes.size();
  const auto failed = [](const char* what) {
    return absl::UnavailableError(fmt::format("no table of cores: {}: {}", what, strerror(errno)));
  };
  CoreTable table(memfd_create("baton-cores", MFD_CLOEXEC));
  if (table.fd_ < 0) return failed("memfd_create");
  if (ftruncate(table.fd_, sizeof(CorePage)) != 0) return failed("ftruncate");
  void* memory = mmap(nullptr, sizeof(CorePage), PROT_READ | PROT_WRITE, MAP_SHARED, table.fd_, 0);
  if (memory == MAP_FAILED) return failed("mmap");
  auto* page = new (memory) CorePage{};
  page->cores = cores;
  page->members = static_cast<int32_t>(homes.size());
  for (size_t m = 0; m < homes.size(); ++m) {
    BATON_CHECK(homes[m].first >= 0 && homes[m].count >= 1 && homes[m].first + homes[m].count <= cores)
        << " home of member " << m;
    page->member[m].home = homes[m];
  }
  page->magic = CorePage::kMagic;
  munmap(memory, sizeof(CorePage));
  return table;
}

CoreTable::CoreTable(CoreTable&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

CoreTable::~CoreTable() {
  if (fd_ >= 0) close(fd_);
}

std::string CoreTable::NameOf(int index) const {
  return fmt::format("/proc/{}/fd/{}:{}", getpid(), fd_, index);
}

}  // namespace baton::device
