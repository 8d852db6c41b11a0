#include "transfer/ucx/ucp_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <string_view>

namespace baton::transfer {
namespace {

constexpr char kLibrary[] = "libucp.so.0";

absl::StatusOr<UcpLibrary> LoadOnce() {
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return absl::FailedPreconditionError(
        fmt::format("--link ucx: {} can't be loaded ({}): install Debian's libucx0 (with KV on GPUs: a UCX "
                    "built with CUDA), or use --link host",
                    kLibrary, why == nullptr ? "no reason given" : why));
  }
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  UcpLibrary ucp;
  find("ucp_get_version", ucp.get_version);
  find("ucp_config_read", ucp.config_read);
  find("ucp_config_modify", ucp.config_modify);
  find("ucp_config_release", ucp.config_release);
  find("ucp_init_version", ucp.init_version);
  find("ucp_context_query", ucp.context_query);
  find("ucp_cleanup", ucp.cleanup);
  find("ucp_worker_create", ucp.worker_create);
  find("ucp_worker_destroy", ucp.worker_destroy);
  find("ucp_worker_get_efd", ucp.worker_get_efd);
  find("ucp_worker_arm", ucp.worker_arm);
  find("ucp_worker_progress", ucp.worker_progress);
  find("ucp_worker_set_am_recv_handler", ucp.worker_set_am_recv_handler);
  find("ucp_mem_map", ucp.mem_map);
  find("ucp_mem_unmap", ucp.mem_unmap);
  find("ucp_rkey_pack", ucp.rkey_pack);
  find("ucp_rkey_buffer_release", ucp.rkey_buffer_release);
  find("ucp_ep_create", ucp.ep_create);
  find("ucp_listener_create", ucp.listener_create);
  find("ucp_listener_query", ucp.listener_query);
  find("ucp_listener_reject", ucp.listener_reject);
  find("ucp_listener_destroy", ucp.listener_destroy);
  find("ucp_ep_flush_nbx", ucp.ep_flush_nbx);
  find("ucp_ep_close_nbx", ucp.ep_close_nbx);
  find("ucp_ep_rkey_unpack", ucp.ep_rkey_unpack);
  find("ucp_rkey_destroy", ucp.rkey_destroy);
  find("ucp_get_nbx", ucp.get_nbx);
  find("ucp_am_send_nbx", ucp.am_send_nbx);
  find("ucp_request_check_status", ucp.request_check_status);
  find("ucp_request_free", ucp.request_free);
  find("ucs_status_string", ucp.status_string);
  void (*take_back_signals)() = nullptr;
  find("ucs_debug_disable_signals", take_back_signals);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("--link ucx: {} has no {}: it is too old", kLibrary, missing));
  }
  take_back_signals();
  return ucp;
}

}  // namespace

absl::StatusOr<const UcpLibrary*> UcpLibrary::Load() {
  static const auto* const kLoaded = new absl::StatusOr<UcpLibrary>(LoadOnce());
  if (!kLoaded->ok()) return kLoaded->status();
  return &**kLoaded;
}

}  // namespace baton::transfer
