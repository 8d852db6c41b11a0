// Resolver: the IP addresses of a host name. The seam between who needs them and DNS, which tests script.
// SystemResolver asks getaddrinfo, on a thread of its own since that blocks for as long as it likes: one name
// after the other. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

class Resolver {
 public:
  // IPv4 and IPv6 addresses, without brackets. NOT_FOUND: the name has none, says DNS. Any other error: DNS
  // could not be asked.
  using Answer = absl::StatusOr<std::vector<std::string>>;

  virtual ~Resolver() = default;
  // `done` is called at most once, on any thread, perhaps before this returns; not if the resolver goes
  // before it has the answer.
  virtual void Resolve(const std::string& host, std::function<void(Answer)> done) = 0;
};

class SystemResolver final : public Resolver {
 public:
  SystemResolver();
  // Doesn't wait for a question that DNS is slow to answer.
  ~SystemResolver() override;
  void Resolve(const std::string& host, std::function<void(Answer)> done) override;

 private:
  struct Work;
  const std::shared_ptr<Work> work_;  // the thread's too
};

}  // namespace baton
