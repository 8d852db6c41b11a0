// Deployment: a decode worker, a router and a gateway as real processes, for strangers to attack, and what is
// looked at meanwhile. One thread, but for a victim's call.
#pragma once

#include <grpcpp/support/status.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "tests/e2e/fleet.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"
#include "tests/process_status.h"

namespace baton::strangers {

inline const absl::Duration kGenerous = Scaled(absl::Seconds(60));
inline constexpr int64_t kMiB = 1 << 20;

struct Victim {
  std::string name;
  std::string address;
  pid_t pid;
  // A method that takes any message.
  std::string path;
  // A real call of a real client, on a connection of its own.
  std::function<grpc::Status()> call;
};

class Deployment {
 public:
  // `secured`: with TLS and keys; otherwise without TLS and open to all.
  explicit Deployment(bool secured);
  ~Deployment();

  bool secured() const { return secured_; }
  std::vector<Victim> victims();
  // Where strangers are meant to be.
  Victim gateway();

 private:
  grpc::Status Generate(const e2e::Process& door);
  grpc::Status Watch();

  const bool secured_;
  const std::filesystem::path folder_;
  rpc::Authority authority_{"fleet"};
  std::optional<e2e::Process> decode_, router_, gateway_;
  std::shared_ptr<const rpc::Security> worker_security_, client_security_;
};

// Runs `attack` while others call, and looks at what it cost: at most so many bytes at its height, and little
// of them afterwards.
void Withstand(const Victim& victim, const std::string& name, int64_t height_allowed,
               const std::function<void()>& attack);

}  // namespace baton::strangers
