#include "common/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace baton::rpc {
namespace {

constexpr std::string_view kSilentPeer = ": Keepalive watchdog fired";

void Log(gpr_log_func_args* args) {
  const std::string_view message = args->message;
  if (const size_t end = message.find(kSilentPeer); end != std::string_view::npos) {
    spdlog::warn("{} answered no ping in time: its connection is closed, and the calls on it have ended",
                 message.substr(0, end));
    return;
  }
  spdlog::debug("gRPC: {}", message);
}

void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  spdlog::debug("Protobuf: {}", message);
}

}  // namespace

void RouteGrpcLog() {
  google::protobuf::SetLogHandler(&LogProtobuf);
  gpr_set_log_function(&Log);
  // gRPC reports a silent peer at this level.
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
}

}  // namespace baton::rpc
