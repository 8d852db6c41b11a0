#include "router/vllm/running_requests.h"

#include <vector>

namespace baton::router::vllm {

RunningRequests::Guard RunningRequests::Add(admission::TenantId tenant, const std::string& id, End end) {
  absl::MutexLock lock(&mutex_);
  const auto at = ends_.emplace(Key(tenant, id), std::make_shared<const End>(std::move(end)));
  return Guard(nullptr, [this, at](void*) {
    std::shared_ptr<const End> last;  // goes after the lock
    absl::MutexLock unlock(&mutex_);
    last = at->second;
    ends_.erase(at);
  });
}

void RunningRequests::Abort(admission::TenantId tenant, const std::string& id) {
  std::vector<std::shared_ptr<const End>> found;
  {
    absl::MutexLock lock(&mutex_);
    const auto [first, last] = ends_.equal_range(Key(tenant, id));
    for (auto at = first; at != last; ++at) found.push_back(at->second);
  }
  for (const auto& end : found) (*end)();
}

}  // namespace baton::router::vllm
