// UcpLibrary: UCX's functions, loaded when a worker asks for --link ucx and at no other time: the library
// starts threads and installs signal handlers as soon as it is loaded, and a worker on the host link should
// have neither. It is never unloaded. The signal handlers are taken back at once.
#pragma once

#include <ucp/api/ucp.h>

#include "absl/status/statusor.h"

namespace baton::transfer {

struct UcpLibrary {
  decltype(&ucp_get_version) get_version = nullptr;
  decltype(&ucp_config_read) config_read = nullptr;
  decltype(&ucp_config_modify) config_modify = nullptr;
  decltype(&ucp_config_release) config_release = nullptr;
  decltype(&ucp_init_version) init_version = nullptr;
  decltype(&ucp_context_query) context_query = nullptr;
  decltype(&ucp_cleanup) cleanup = nullptr;
  decltype(&ucp_worker_create) worker_create = nullptr;
  decltype(&ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&ucp_worker_arm) worker_arm = nullptr;
  decltype(&ucp_worker_progress) worker_progress = nullptr;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&ucp_mem_map) mem_map = nullptr;
  decltype(&ucp_mem_unmap) mem_unmap = nullptr;
  decltype(&ucp_rkey_pack) rkey_pack = nullptr;
  decltype(&ucp_rkey_buffer_release) rkey_buffer_release = nullptr;
  decltype(&ucp_ep_create) ep_create = nullptr;
  decltype(&ucp_listener_create) listener_create = nullptr;
  decltype(&ucp_listener_query) listener_query = nullptr;
  decltype(&ucp_listener_reject) listener_reject = nullptr;
  decltype(&ucp_listener_destroy) listener_destroy = nullptr;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack = nullptr;
  decltype(&ucp_rkey_destroy) rkey_destroy = nullptr;
  decltype(&ucp_get_nbx) get_nbx = nullptr;
  decltype(&ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&ucp_request_check_status) request_check_status = nullptr;
  decltype(&ucp_request_free) request_free = nullptr;
  decltype(&ucs_status_string) status_string = nullptr;

  // Loaded once per process. FAILED_PRECONDITION says what this machine lacks.
  static absl::StatusOr<const UcpLibrary*> Load();
};

}  // namespace baton::transfer
