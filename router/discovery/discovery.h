// Discovery: finds out where workers are, and says so whenever that changes: from addresses and DNS names
// given at the start, and from a fleet file that is read again when it changes (a bad one leaves the old in
// force). The Roster decides; this brings it the time, the answers and the file, on one thread of its own,
// which never waits for DNS.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/resolver.h"
#include "router/discovery/roster.h"
#include "router/files/watched_file.h"

namespace baton::router::discovery {

class Discovery {
 public:
  struct Options {
    std::vector<std::string> decode;  // entries; see Entry
    std::vector<std::string> prefill;
    std::string fleet_file;  // empty: none
    absl::Duration resolve_every = absl::Seconds(5);
    absl::Duration look_every = absl::Seconds(1);  // at the file
  };
  using OnFound = std::function<void(const Found&)>;

  // INVALID_ARGUMENT or NOT_FOUND if an entry or the file can't be read, or nothing could ever name a decode
  // worker. Without a resolver: the system's. The clock outlives this.
  static absl::StatusOr<std::unique_ptr<Discovery>> Open(const Options& options,
                                                         std::shared_ptr<Resolver> resolver,
                                                         const Clock& clock, OnFound on_found);
  ~Discovery();

  // Calls `on_found` with what needs no DNS before it returns, and later from the thread, one at a time.
  void Start();
  // No further call; afterwards Hurry() still does no harm.
  void Stop();
  // A worker was lost. Any thread; doesn't wait.
  void Hurry();

  // Does what is due now. Start() does this; tests that move a clock by hand call it instead.
  void Step();
  // Reads the fleet file now. An error says what is wrong with it, and nothing changes. Any thread; the next
  // Step() goes by it.
  absl::Status Reload();

 private:
  struct Inbox;

  Discovery(const Options& options, Lists given, std::shared_ptr<Resolver> resolver, const Clock& clock,
            OnFound on_found);
  void StepUntilStopped();

  const Options options_;
  const std::shared_ptr<Resolver> resolver_;
  const Clock& clock_;
  const OnFound on_found_;
  const std::shared_ptr<Inbox> inbox_;  // the answers' too, which may come after this has gone
  // The thread's.
  Roster roster_;
  std::optional<Found> said_;
  std::thread thread_;
  std::optional<WatchedFile> file_;  // its thread uses the inbox
};

}  // namespace baton::router::discovery
