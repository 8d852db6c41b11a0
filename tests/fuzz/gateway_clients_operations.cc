#include "tests/fuzz/gateway_clients_operations.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "gateway/gateway.h"
#include "tests/fakes/fake_inference.h"
#include "tests/fuzz/operation_sequence.h"
#include "tests/http2_frames.h"
#include "tests/patience.h"

namespace baton::gateway {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kWindowUpdate = 8;
constexpr uint8_t kEndStream = 1, kEndHeaders = 4;
// A client that takes little makes its answers wait in the gateway.
constexpr int kSmallWindow = 2048;
constexpr size_t kMaxBodyBytes = 20'000;

// Answers of many parts, and some that never end.
fakes::Script AnswerTo(const v1::ChatRequest& request) {
  const auto& messages = request.conversation().messages();
  const std::string asked = messages.empty() ? "" : messages.rbegin()->content();
  fakes::Script script = fakes::AnswerWith(std::vector<int32_t>(asked == "long" ? 300 : 3, 7), 4);
  if (asked == "wait") script.steps[2].wait = absl::InfiniteDuration();
  return script;
}

struct Served {
  fakes::FakeInference router{{.chat = AnswerTo}};
  std::unique_ptr<Gateway> gateway;
};

Gateway& TheGateway() {
  static Served* const served = [] {
    auto* const made = new Served;
    GatewayOptions options{.routers = {made->router.address()}};
    options.http.max_header_bytes = 2000;
    options.http.max_body_bytes = kMaxBodyBytes;
    auto started = Gateway::Start(options);
    BATON_CHECK(started.ok()) << started.status();
    made->gateway = *std::move(started);
    return made;
  }();
  return *served->gateway;
}

// Requests of a client over HTTP/1.1; the last ones begin a body that goes on.
const std::vector<std::string>& Requests() {
  static const std::vector<std::string> requests = [] {
    const auto post = [](const std::string& path, const std::string& body) {
      return fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}", path, body.size(),
                         body);
    };
    const auto chat = [&](const std::string& text, bool stream) {
      return post("/v1/chat/completions",
                  fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}], "stream": {}}})", text,
                              stream));
    };
    const std::string chunked =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    return std::vector<std::string>{
        "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /ready HTTP/1.0\r\n\r\n",
        chat("hi", false),
        chat("long", false),
        chat("long", true),
        chat("wait", false),
        chat("wait", true),
        post("/tokenize", R"({"prompt": "hi"})"),
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: "
        "900\r\n\r\n",
        chunked,
        chunked,
    };
  }();
  return requests;
}

class Client {
 public:
  Client(bool http2, bool small) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), http2_(http2) {
    if (small) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &kSmallWindow, sizeof(kSmallWindow));
    const timeval patience = {.tv_sec = Scaled(60), .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const std::string& address = TheGateway().address();
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    BATON_CHECK(socket_ >= 0 && connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    if (http2) Say(std::string(http2::kPreface));
  }
  ~Client() {
    // No connection stays behind in a state of waiting: there are only so many ports.
    if (socket_ >= 0) Leave(/*reset=*/true);
  }

  bool http2() const { return http2_; }
  // As much of it as fits into the socket.
  void Say(std::string_view bytes) {
    [[maybe_unused]] const ssize_t sent =
        send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void Take(size_t bytes) {
    std::string room(bytes, '\0');
    [[maybe_unused]] const ssize_t got = recv(socket_, room.data(), room.size(), MSG_DONTWAIT);
  }
  void SayNoMore() { shutdown(socket_, SHUT_WR); }
  void Leave(bool reset) {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    if (reset) setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(std::exchange(socket_, -1));
  }
  // Everything until the gateway hangs up, or nothing comes for long.
  std::string ToEnd() {
    std::string all;
    char piece[4096];
    for (ssize_t got = 0; (got = recv(socket_, piece, sizeof(piece), 0)) > 0;)
      all.append(piece, static_cast<size_t>(got));
    return all;
  }

 private:
  int socket_;
  const bool http2_;
};

class Operations final : public OperationSequence {
 public:
  explicit Operations(std::span<const uint8_t> bytes) : OperationSequence(bytes, 16) {}

 private:
  void Do(int operation) override {
    const uint8_t who = Next();
    std::unique_ptr<Client>& client = clients_[who % clients_.size()];
    if (client == nullptr) client = std::make_unique<Client>((who & 0x80) != 0, (who & 0x40) != 0);
    switch (operation) {
      case 0:
      case 1:
        client->Leave(operation == 0);
        client.reset();
        return;
      case 2:
        return client->SayNoMore();
      case 3:
        return client->Take(size_t{1} << (Next() % 14));
      case 4: {  // a piece of what it says, from the operations themselves
        const auto piece = bytes_.first(std::min<size_t>(bytes_.size(), Next() % 32));
        client->Say({reinterpret_cast<const char*>(piece.data()), piece.size()});
        bytes_ = bytes_.subspan(piece.size());
        return;
      }
      case 5:
        return SayLong(*client);
      case 6:
        return Others();
      default:
        return client->http2() ? SayFrame(operation, *client) : SayRequest(operation, *client);
    }
  }
  void Look() override {}
  void ComeToAnEnd() override {
    for (auto& client : clients_) client.reset();
    Others();
    const auto nothing = [] {
      const http::ServerCounts counts = TheGateway().counts();
      return counts.connections == 0 && counts.streams == 0 && counts.held_bytes == 0;
    };
    const auto left = [] {
      const http::ServerCounts counts = TheGateway().counts();
      return fmt::format("{} connections, {} streams and {} bytes are left", counts.connections,
                         counts.streams, counts.held_bytes);
    };
    if (!Await(nothing, left)) Wrong(left());
  }

  // A client that does nothing odd.
  void Others() {
    Client other(false, false);
    other.Say("GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const std::string answer = other.ToEnd();
    if (!answer.starts_with("HTTP/1.1 200 ")) Wrong("another client was told: " + answer.substr(0, 100));
  }

  void SayRequest(int operation, Client& client) {
    if (operation >= 13) return client.Say(fmt::format("{:x}\r\n{}\r\n", 200, std::string(200, 'a')));
    if (operation == 12) return client.Say("0\r\nx-api-key: k\r\n\r\n");
    const std::string& request = Requests()[Next() % Requests().size()];
    // Most are whole.
    const size_t cut = operation < 10 ? request.size() : Next();
    client.Say(std::string_view(request).substr(0, cut));
  }

  // A line that is longer than a header may be, in one of the places where a line may stand.
  void SayLong(Client& client) {
    static constexpr std::string_view kBefore[] = {"GET /", "A: ", "0\r\nA: ", "1;a=", "0\r\n", ""};
    const std::string_view before = kBefore[Next() % std::size(kBefore)];
    const std::string fill(size_t{1} << (Next() % 18), static_cast<char>('0' + Next() % 60));
    client.Say(fmt::format("{}{}\r\n", before, fill));
  }

  void SayFrame(int operation, Client& client) {
    const uint32_t stream = 2 * (Next() % 32) + 1;
    const auto number = [](uint32_t value) {
      std::string bytes;
      for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
      return bytes;
    };
    const auto head = [&](std::string_view method, std::string_view path, std::string_view type, bool last) {
      client.Say(http2::Frame(kHeaders, static_cast<uint8_t>(kEndHeaders | (last ? kEndStream : 0)), stream,
                              http2::Literal(":method", method) + http2::Literal(":scheme", "http") +
                                  http2::Literal(":path", path) + http2::Literal(":authority", "h") +
                                  http2::Literal("content-type", type)));
    };
    switch (operation) {
      case 7:
        return head("GET", "/v1/models", "text/plain", true);
      case 8:
        return head("POST", "/v1/chat/completions", "application/json", false);
      case 9:
        return head("POST", "/baton.v1.Inference/Chat", "application/grpc", false);
      case 10: {
        const std::string body = Requests()[2 + Next() % 5];
        return client.Say(http2::Frame(kData, kEndStream, stream, body.substr(body.find('{'))));
      }
      case 11:
        return client.Say(http2::Frame(kData, Next() & 1, stream, std::string(5, '\0')));
      case 12:
      case 13:
        return client.Say(http2::Frame(kReset, 0, stream, number(8)));
      case 14:  // SETTINGS_INITIAL_WINDOW_SIZE
        return client.Say(http2::Frame(kSettings, 0, 0, std::string("\0\4", 2) + number(Next() * 64)));
      default:
        return client.Say(
            http2::Frame(kWindowUpdate, 0, Next() % 2 == 0 ? 0 : stream, number(1 + Next() * 64)));
    }
  }

  std::array<std::unique_ptr<Client>, 5> clients_;
};

}  // namespace

absl::StatusOr<int64_t> RunGatewayClientsOperations(std::span<const uint8_t> bytes) {
  return Operations(bytes).Run();
}

}  // namespace baton::gateway
