// FakeCollector: an OpenTelemetry collector over HTTP that keeps what it is sent, and answers as a test says.
// It has a thread for each connection. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace baton::telemetry {

class FakeCollector {
 public:
  struct Request {
    std::string target, content_type, body;
  };
  struct Answer {
    int status = 200;
    std::string body = "{}";
    bool close = false;  // the connection, after the answer
    bool hang = false;   // no answer until the collector is destroyed
  };

  // Listens on 127.0.0.1, at `port`; 0: the system chooses. CHECK-fails if it can't.
  explicit FakeCollector(uint16_t port = 0);
  ~FakeCollector();

  uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // From now on, called for each request with its number, from 0; on a connection's thread.
  void SetAnswer(std::function<Answer(int number)> answer);
  std::vector<Request> requests() const;
  // Spans of all requests, each with its resource's attributes as "resource".
  std::vector<nlohmann::json> spans() const { return SpansOf(requests()); }
  // Waits until `enough` likes what has come. False after two minutes, scaled.
  bool Await(const std::function<bool(const std::vector<Request>&)>& enough) const;
  // The same, for spans().
  bool AwaitSpans(const std::function<bool(const std::vector<nlohmann::json>&)>& enough) const;

 private:
  static std::vector<nlohmann::json> SpansOf(const std::vector<Request>& requests);
  void Accept();
  void Serve(int socket);

  int listener_ = -1;
  uint16_t port_ = 0;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<Answer(int)> answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> open_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

// The value of a span's attribute, as OTLP's JSON has it: {"intValue": "7"}; null if it has none.
nlohmann::json AttributeOf(const nlohmann::json& span, const std::string& key);

}  // namespace baton::telemetry
