#include "gateway/probe.h"

namespace baton::gateway {

void Probe::Answered(const std::string& endpoint, int status, absl::Duration took) {
  metrics_
      .Counter("baton_gateway_requests_total", "Requests that have ended, by endpoint and HTTP status",
               {{"endpoint", endpoint}, {"status", std::to_string(status)}})
      .Increment();
  metrics_
      .Histogram("baton_gateway_request_seconds", "From a request's last byte to the end of its answer",
                 telemetry::EndToEndBuckets(), {{"endpoint", endpoint}})
      .Observe(absl::ToDoubleSeconds(took));
}

void Probe::Called(int code, absl::Duration took) {
  metrics_
      .Counter("baton_gateway_calls_total", "gRPC calls that were passed on and have ended, by gRPC status",
               {{"code", std::to_string(code)}})
      .Increment();
  metrics_
      .Histogram("baton_gateway_call_seconds", "From a gRPC call's first message to its end",
                 telemetry::EndToEndBuckets())
      .Observe(absl::ToDoubleSeconds(took));
}

void Probe::Ignored(size_t members) {
  if (members == 0) return;
  metrics_
      .Counter("baton_gateway_ignored_fields_total",
               "Members of requests that are not known here and had no effect")
      .Increment(static_cast<double>(members));
}

void Probe::Streams(int change) {
  metrics_.Gauge("baton_gateway_answers", "Answers under way").Increment(change);
}

prometheus::Counter& Probe::Tries(bool resumed) {
  return metrics_.Counter(
      "baton_gateway_tries_total",
      "Calls that broke off and were made again, at another router where there is one: `anew` with "
      "nothing of the answer yet, or `resumed` behind what the client has",
      {{"how", resumed ? "resumed" : "anew"}});
}

void Probe::GoesOn(bool resumed) { Tries(resumed).Increment(); }

void Probe::Routers(int64_t ready, int64_t known) {
  metrics_.Gauge("baton_gateway_routers", "Routers that are known").Set(static_cast<double>(known));
  metrics_.Gauge("baton_gateway_routers_ready", "Routers that say that they take requests")
      .Set(static_cast<double>(ready));
}

void Probe::FirstPart(absl::Duration took) {
  metrics_
      .Histogram("baton_gateway_ttft_seconds",
                 "From a request's last byte to the first part of its answer from the router",
                 telemetry::TtftBuckets())
      .Observe(absl::ToDoubleSeconds(took));
}

void Probe::Connections(const http::ServerCounts& counts) {
  metrics_.Gauge("baton_gateway_connections", "Clients' connections that are open")
      .Set(static_cast<double>(counts.connections));
  metrics_
      .Counter("baton_gateway_connections_refused_total",
               "Connections that were closed because there were too many, in all or of one address")
      .Increment(static_cast<double>(counts.refused_connections - counted_.refused_connections));
  metrics_.Counter("baton_gateway_bad_requests_total", "Requests that are no HTTP/1.1 or beyond its limits")
      .Increment(static_cast<double>(counts.bad_requests - counted_.bad_requests));
  metrics_.Counter("baton_gateway_tls_failures_total", "TLS handshakes that failed, or did not end in time")
      .Increment(static_cast<double>(counts.failed_handshakes - counted_.failed_handshakes));
  metrics_
      .Counter(
          "baton_gateway_floods_total",
          "Connections of HTTP/2 that were ended for what the client did: resets or control frames beyond "
          "their limits")
      .Increment(static_cast<double>(counts.floods - counted_.floods));
  metrics_
      .Counter("baton_gateway_streams_refused_total",
               "Streams of HTTP/2 beyond their limit, in all, of one address or of one connection")
      .Increment(static_cast<double>(counts.refused_streams - counted_.refused_streams));
  metrics_.Gauge("baton_gateway_held_bytes", "What clients have the process hold")
      .Set(static_cast<double>(counts.held_bytes));
  counted_ = counts;
}

void Probe::MostConnections(size_t limit) {
  metrics_.Gauge("baton_gateway_connections_limit", "Clients' connections that may be open")
      .Set(static_cast<double>(limit));
  Connections({});  // all of it is there before the first client
  Streams(0);
  for (const bool resumed : {false, true}) Tries(resumed);
}

}  // namespace baton::gateway
