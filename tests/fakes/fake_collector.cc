#include "tests/fakes/fake_collector.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::telemetry {
namespace {

const absl::Duration kGenerous = Scaled(absl::Minutes(2));

// Reads until `received` has `bytes` bytes. False: the connection ended before.
bool Fill(int socket, size_t bytes, std::string* received) {
  while (received->size() < bytes) {
    char buffer[4096];
    const ssize_t count = recv(socket, buffer, sizeof(buffer), 0);
    if (count <= 0) return false;
    received->append(buffer, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

FakeCollector::FakeCollector(uint16_t port) : answer_([](int) { return Answer(); }) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const bound = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  BATON_CHECK(bind(listener_, bound, size) == 0 && listen(listener_, 16) == 0);
  BATON_CHECK(getsockname(listener_, bound, &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

FakeCollector::~FakeCollector() {
  std::list<std::thread> connections;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    for (const int socket : open_) shutdown(socket, SHUT_RDWR);
  }
  acceptor_.join();
  {
    absl::MutexLock lock(&mutex_);
    connections.swap(connections_);
  }
  for (std::thread& connection : connections) connection.join();
  close(listener_);
}

void FakeCollector::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      if (socket >= 0) close(socket);
      return;
    }
    if (socket < 0) continue;
    open_.push_back(socket);
    connections_.emplace_back([this, socket] { Serve(socket); });
  }
}

void FakeCollector::Serve(int socket) {
  std::string received;
  while (true) {
    size_t head = 0;
    while ((head = received.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill(socket, received.size() + 1, &received)) break;
    }
    if (head == std::string::npos) break;
    Request request;
    size_t length = 0;
    const std::vector<std::string> lines = absl::StrSplit(received.substr(0, head), "\r\n");
    const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
    if (first.size() > 1) request.target = first[1];
    for (const std::string& line : lines) {
      const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(": ", 1));
      if (absl::EqualsIgnoreCase(field.first, "content-type")) request.content_type = field.second;
      if (absl::EqualsIgnoreCase(field.first, "content-length")) {
        BATON_CHECK(absl::SimpleAtoi(field.second, &length));
      }
    }
    if (!Fill(socket, head + 4 + length, &received)) break;
    request.body = received.substr(head + 4, length);
    received.erase(0, head + 4 + length);
    Answer answer;
    {
      absl::MutexLock lock(&mutex_);
      answer = answer_(static_cast<int>(requests_.size()));
      requests_.push_back(std::move(request));
      if (answer.hang) mutex_.Await(absl::Condition(&stopping_));
      if (stopping_) break;
    }
    const std::string bytes =
        absl::StrCat("HTTP/1.1 ", answer.status, " Said\r\nContent-Type: application/json",
                     "\r\nContent-Length: ", answer.body.size(), answer.close ? "\r\nConnection: close" : "",
                     "\r\n\r\n", answer.body);
    if (send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 || answer.close) break;
  }
  absl::MutexLock lock(&mutex_);
  open_.erase(std::find(open_.begin(), open_.end(), socket));
  close(socket);
}

void FakeCollector::SetAnswer(std::function<Answer(int)> answer) {
  absl::MutexLock lock(&mutex_);
  answer_ = std::move(answer);
}

std::vector<FakeCollector::Request> FakeCollector::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

std::vector<nlohmann::json> FakeCollector::SpansOf(const std::vector<Request>& requests) {
  std::vector<nlohmann::json> all;
  for (const Request& request : requests) {
    const nlohmann::json json = nlohmann::json::parse(request.body);
    for (const nlohmann::json& of_resource : json.at("resourceSpans")) {
      for (const nlohmann::json& of_scope : of_resource.at("scopeSpans")) {
        for (nlohmann::json span : of_scope.at("spans")) {
          span["resource"] = of_resource.at("resource").at("attributes");
          all.push_back(std::move(span));
        }
      }
    }
  }
  return all;
}

bool FakeCollector::Await(const std::function<bool(const std::vector<Request>&)>& enough) const {
  absl::MutexLock lock(&mutex_);
  const auto liked = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return enough(requests_); };
  return mutex_.AwaitWithTimeout(absl::Condition(&liked), kGenerous);
}

bool FakeCollector::AwaitSpans(const std::function<bool(const std::vector<nlohmann::json>&)>& enough) const {
  while (true) {
    const std::vector<Request> here = requests();
    if (enough(SpansOf(here))) return true;
    if (!Await([&here](const std::vector<Request>& now) { return now.size() > here.size(); })) return false;
  }
}

nlohmann::json AttributeOf(const nlohmann::json& span, const std::string& key) {
  for (const nlohmann::json& attribute : span.at("attributes")) {
    if (attribute.at("key") == key) return attribute.at("value");
  }
  return nullptr;
}

}  // namespace baton::telemetry
