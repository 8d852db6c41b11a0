// Exchange: one request over HTTP and its answer, between the server, which owns the connection, and a
// handler, which answers when it can: in one piece, or as a stream that goes on as fast as the client takes
// it. Any thread may call it; what it is given to run runs on the server's thread. A handler that lets go of
// it without an answer has the connection closed.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::gateway::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;   // in capitals
  std::string path;     // without the query
  std::string address;  // of the client, without the port
  Headers headers;      // names in small letters
  std::string body;

  // Empty: it is absent.
  std::string_view Header(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string content_type = "application/json";
  std::string body;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;

  // The whole answer. Once, instead of Begin.
  virtual void Answer(Response response) = 0;

  // The head of a stream; `body` is its first piece, and may be empty.
  virtual void Begin(Response response) = 0;
  // A piece of it. `taken`: it has left, and the next may follow. It does not come if the client is gone.
  virtual void Write(std::string piece, std::function<void()> taken) = 0;
  // Its end.
  virtual void End() = 0;
  // Its end in the middle: the client sees that the answer is cut.
  virtual void Abort() = 0;

  // The handler holds so many bytes for the answer from now on, of all that clients may have the process
  // hold, until it lets go of the exchange. On the server's thread. False: there is no room, and it stays as
  // it was.
  virtual bool Hold(size_t bytes) = 0;

  // `gone` runs once if the client goes away before the answer's end. At once if it has gone.
  virtual void OnGone(std::function<void()> gone) = 0;
  // Runs `what` on the server's thread.
  virtual void Post(std::function<void()> what) = 0;
  // Runs `what` on the server's thread after so many milliseconds, unless the answer has ended. One at a
  // time: a later call takes the place of one before.
  virtual void After(int milliseconds, std::function<void()> what) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace baton::gateway::http
