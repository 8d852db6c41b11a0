// Probe: what the gateway tells of itself. Any thread, but for Connections.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "gateway/http/server.h"

namespace baton::gateway {

class Probe {
 public:
  explicit Probe(telemetry::Metrics& metrics) : metrics_(metrics) {}

  // A request has its answer: by endpoint and HTTP status. 499: the client went away.
  void Answered(const std::string& endpoint, int status, absl::Duration took);
  // A gRPC call has ended, with this status.
  void Called(int code, absl::Duration took);
  // Members of requests that were ignored.
  void Ignored(size_t members);
  void Streams(int change);
  // A call whose router broke off is made again. `resumed`: for what lies behind the part that the client
  // has.
  void GoesOn(bool resumed);
  // Routers that are known, and that take requests.
  void Routers(int64_t ready, int64_t known);
  // The answer's first part has come.
  void FirstPart(absl::Duration took);
  // How the server's connections stand. On the server's thread.
  void Connections(const http::ServerCounts& counts);
  // How many there may be.
  void MostConnections(size_t limit);

 private:
  prometheus::Counter& Tries(bool resumed);

  telemetry::Metrics& metrics_;
  http::ServerCounts counted_;
};

}  // namespace baton::gateway
