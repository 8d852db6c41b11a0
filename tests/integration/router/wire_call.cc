#include "tests/integration/router/wire_call.h"

#include <arpa/inet.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "common/base/check.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

struct Exchange {
  WireCall call;
  std::string body;
  size_t sent = 0;
  bool closed = false;
};

Exchange& Of(void* user) { return *static_cast<Exchange*>(user); }

int Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  BATON_CHECK(absl::SimpleAtoi(address.substr(colon + 1), &port));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  BATON_CHECK(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) == 1) << address;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  BATON_CHECK(connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) << address;
  const timeval patience = absl::ToTimeval(Scaled(absl::Seconds(60)));
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

nghttp2_session* NewSession(Exchange* exchange) {
  nghttp2_session_callbacks* callbacks = nullptr;
  BATON_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t, void* user) {
        Of(user).call.fields[std::string(reinterpret_cast<const char*>(name), name_size)] =
            std::string(reinterpret_cast<const char*>(value), value_size);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        if (frame->hd.type == NGHTTP2_HEADERS) ++Of(user).call.blocks;
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                         [](nghttp2_session*, int32_t, uint32_t, void* user) {
                                                           Of(user).closed = true;
                                                           return 0;
                                                         });
  nghttp2_session* session = nullptr;
  BATON_CHECK(nghttp2_session_client_new(&session, callbacks, exchange) == 0);
  nghttp2_session_callbacks_del(callbacks);
  return session;
}

}  // namespace

std::string WireCall::Binary(const std::string& name) const {
  const auto found = fields.find(name);
  std::string bytes;
  if (found != fields.end()) BATON_CHECK(absl::Base64Unescape(found->second, &bytes)) << found->second;
  return bytes;
}

std::string WireCall::Framed(const std::string& message, bool compressed) {
  std::string framed(1, compressed ? '\1' : '\0');
  for (int shift = 24; shift >= 0; shift -= 8) framed += static_cast<char>(message.size() >> shift);
  return framed + message;
}

WireCall WireCall::Make(const std::string& address, const std::string& method, const std::string& body,
                        const Fields& more) {
  Exchange exchange;
  exchange.body = body;
  nghttp2_session* const session = NewSession(&exchange);
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
  Fields fields = {{":method", "POST"}, {":scheme", "http"}, {":path", method},
                   {":authority", "a"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  fields.insert(fields.end(), more.begin(), more.end());
  std::vector<nghttp2_nv> names;
  for (auto& [name, value] : fields) {
    names.push_back({reinterpret_cast<uint8_t*>(name.data()), reinterpret_cast<uint8_t*>(value.data()),
                     name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  nghttp2_data_provider data = {};
  data.read_callback = [](nghttp2_session*, int32_t, uint8_t* to, size_t room, uint32_t* flags,
                          nghttp2_data_source*, void* user) -> ssize_t {
    Exchange& one = Of(user);
    const size_t size = std::min(room, one.body.size() - one.sent);
    std::memcpy(to, one.body.data() + one.sent, size);
    one.sent += size;
    if (one.sent == one.body.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  };
  BATON_CHECK(nghttp2_submit_request(session, nullptr, names.data(), names.size(), &data, nullptr) > 0);
  const int socket = Connect(address);
  std::vector<uint8_t> buffer(64 << 10);
  while (!exchange.closed) {
    const uint8_t* out = nullptr;
    while (const ssize_t size = nghttp2_session_mem_send(session, &out)) {
      BATON_CHECK(size > 0);
      if (send(socket, out, static_cast<size_t>(size), MSG_NOSIGNAL) != size) break;
    }
    if (exchange.closed) break;
    const ssize_t size = recv(socket, buffer.data(), buffer.size(), 0);
    if (size <= 0) break;
    BATON_CHECK(nghttp2_session_mem_recv(session, buffer.data(), static_cast<size_t>(size)) == size);
  }
  close(socket);
  nghttp2_session_del(session);
  return exchange.call;
}

}  // namespace baton::router
