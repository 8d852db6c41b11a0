// Announcement: the addresses of all processes of a running service, for scripts. Plain data.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/serve/served_models.h"
#include "cli/serve/supervisor.h"

namespace baton::cli {

struct Announcement {
  struct Process {
    std::string name;
    pid_t pid = 0;
    std::string grpc;  // empty: it serves none
    std::string metrics;
    std::string http = {};   // empty: it serves none but its metrics
    std::string model = {};  // that it is a worker of; empty: it is none
  };

  std::vector<std::string> models;  // names for clients; the first is the default
  // The router, if there is one, last.
  std::vector<Process> processes;
  bool has_router = false;

  static Announcement From(const std::vector<ServedModel>& models, const AddressBook& book,
                           const std::map<std::string, pid_t>& pids);
  // There is one.
  const Process& Router() const { return processes.back(); }

  // One line: {"model": .., "models": [..], "router": "host:port", "metrics": "host:port", "http":
  // "host:port", "pid": .., "processes": [..]}, without a router's and a gateway's addresses if there is
  // none. "model" is the default.
  std::string ToJson() const;
  // Replaces `path` atomically: a reader sees one whole version.
  absl::Status WriteTo(const std::string& path) const;
};

}  // namespace baton::cli
