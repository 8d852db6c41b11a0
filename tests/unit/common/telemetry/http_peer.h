// HttpPeer: a client of a metrics page that does only what it is told, byte by byte, well-behaved or not. One
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton::telemetry {

// An answer: the status line and headers as they stand, and the body.
struct HttpAnswer {
  std::string head;
  std::string body;
  int status() const;
};

// The loopback interface has IPv6.
bool HostHasIpv6();
// Somebody listens at the address's port on it.
bool ListensOnIpv6(const std::string& address);

class HttpPeer {
 public:
  // Connects at once. Reads fail after 20 s, scaled, so that a test ends that nobody answers.
  explicit HttpPeer(const std::string& address);
  // From the loopback address that ends in `from`.
  HttpPeer(const std::string& address, uint32_t from);
  // A peer that is connected later, whose descriptor is there already.
  HttpPeer();
  ~HttpPeer();
  HttpPeer(HttpPeer&& other) noexcept;
  HttpPeer(const HttpPeer&) = delete;
  HttpPeer& operator=(const HttpPeer&) = delete;

  void Connect(const std::string& address);
  // False: nobody listens there.
  bool TryConnect(const std::string& address);
  // False if the other side has closed.
  bool Send(std::string_view bytes);
  // GET of /metrics, and its answer.
  HttpAnswer Get();
  // The next answer on this connection; an empty head if the connection ended or nothing came in time. An
  // answer to HEAD has no body, whatever its header says.
  HttpAnswer Receive(bool head_only = false);
  // Everything until the other side closes. Nothing may be left to arrive but that: "" then means just
  // closed.
  std::string ReadToEnd();
  // True if something can be read, or the end: at once, or within so many milliseconds.
  bool Readable(int milliseconds);
  // True once a read met the end of the stream, and not an error or a timeout.
  bool at_end() const { return at_end_; }

 private:
  bool Fill();

  int socket_ = -1;
  std::string received_;
  bool at_end_ = false;
};

}  // namespace baton::telemetry
