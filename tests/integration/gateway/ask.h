// A gateway before a fake router, and requests to it over HTTP/1.1.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "gateway/gateway.h"
#include "tests/fakes/fake_inference.h"
#include "tests/unit/common/telemetry/http_peer.h"

namespace baton::gateway {

inline constexpr const char* kHi = R"({"messages": [{"role": "user", "content": "hi"}]})";
inline constexpr const char* kHiStreamed =
    R"({"messages": [{"role": "user", "content": "hi"}], "stream": true})";

inline std::unique_ptr<Gateway> Start(const fakes::FakeInference& router, GatewayOptions options = {}) {
  options.routers = {router.address()};
  auto gateway = Gateway::Start(options);
  EXPECT_TRUE(gateway.ok()) << gateway.status();
  return *std::move(gateway);
}

// `more`: header lines.
inline std::string Post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline telemetry::HttpAnswer Ask(const Gateway& gateway, const std::string& request) {
  telemetry::HttpPeer peer(gateway.address());
  EXPECT_TRUE(peer.Send(request));
  return peer.Receive();
}

}  // namespace baton::gateway
