// UcxFabric: a Fabric over UCX: RDMA where there is some, shared memory and TCP elsewhere; UCX's own settings
// (UCX_TLS, UCX_NET_DEVICES) choose. A worker listens on a port, and its peers connect to that, as clients to
// a server: UCX 1.13 aborts the process when two workers connect by their addresses and one of them dies
// meanwhile. Endpoints have UCX's error handling by peer, so those of a dead process fail, and are closed by
// force: nobody is waited for. Reads are ucp_get: memory is registered for reading only, so a network card
// refuses every write of a peer. Over TCP, UCX itself serves reads, and does not check what it is asked for:
// see docs/security.md.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "transfer/nccl/blocking_calls.h"
#include "transfer/ucx/fabric.h"
#include "transfer/ucx/ucp_library.h"

namespace baton::transfer {

class UcxFabric final : public Fabric {
 public:
  // payloads_on_gpu: payloads lie on the GPU that the calling thread uses, as those of all peers do; slots
  // are in host memory in any case. FAILED_PRECONDITION: there is no UCX on this machine, or it can't reach
  // GPUs; UNAVAILABLE: it does not work here.
  static absl::StatusOr<std::unique_ptr<UcxFabric>> Create(bool payloads_on_gpu);
  ~UcxFabric() override;
  UcxFabric(const UcxFabric&) = delete;
  UcxFabric& operator=(const UcxFabric&) = delete;

  std::string version() const override;
  const std::string& address() const override { return port_; }
  absl::StatusOr<std::string> Register(Region region, std::byte* data, int64_t bytes) override;
  absl::StatusOr<Endpoint> Connect(const std::string& from, const std::string& address,
                                   const std::string& payload_key, const std::string& slot_key) override;
  void Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
            uint64_t number) override;
  void Notify(Endpoint endpoint, std::string_view notice) override;
  void Close(Endpoint endpoint) override;
  void Progress(std::vector<Event>& events) override;
  bool idle() const override;
  void Wait(absl::Duration most) override;
  void Wake() override;

 private:
  // A peer's IPv4 address and port.
  struct Place {
    sockaddr_storage address = {};
    socklen_t bytes = 0;
  };
  // A read or a notice.
  struct Operation {
    UcxFabric* fabric = nullptr;
    Endpoint connection = 0;
    uint64_t number = 0;
    std::string notice;  // of a notice
    Region region = Region::kPayloads;
    uint64_t from = 0;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };
  // One connection, to a peer or from one. It stays until it is closed and its last operation has ended.
  struct Connection {
    UcxFabric* fabric = nullptr;
    Endpoint number = 0;
    bool accepted = false;  // by a peer that reads from here
    bool closed = false;
    bool connected = false;
    bool settled = false;                // the attempt to connect has ended, well or not
    ucp_ep_h ep = nullptr;               // null while the peer's name is looked up, and once it is closed
    ucs_status_ptr_t closing = nullptr;  // while that goes on
    std::string packed[2];
    ucp_rkey_h keys[2] = {nullptr, nullptr};
    std::deque<std::unique_ptr<Operation>> waiting;  // for the connection to be made
    int operations = 0;                              // in progress
  };

  UcxFabric(const UcpLibrary& ucp, bool payloads_on_gpu) : ucp_(ucp), payloads_on_gpu_(payloads_on_gpu) {}
  absl::Status Open();
  // FAILED_PRECONDITION unless UCX has found a way to the GPU's memory.
  absl::Status CheckReachesGpus() const;
  // UCX is told, and does not find it out: a UCX whose part for CUDA is missing takes a GPU's memory for the
  // host's, and dies of reading it.
  ucs_memory_type_t TypeOf(Region region) const {
    return region == Region::kPayloads && payloads_on_gpu_ ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  }
  absl::Status Listen();
  absl::Status ToStatus(ucs_status_t status, std::string_view doing) const;
  void Dial(Connection& connection, const Place& place);
  // Calls Connected when the attempt has ended. Which transports there are is known, and keys can be taken,
  // from then on, and only then is the endpoint closed: UCX 1.13 aborts the process when an endpoint is
  // closed while its connection comes up (its issue 11455).
  void AwaitConnected(Connection& connection);
  // If it succeeded, what waited for the connection begins.
  void Connected(Connection& connection, ucs_status_t status);
  void Failed(Connection& connection, absl::Status status);
  void Accept(ucp_conn_request_h request);
  void Add(Endpoint endpoint, std::unique_ptr<Operation> operation);
  void Begin(Connection& connection, std::unique_ptr<Operation> operation);
  void Ended(std::unique_ptr<Operation> operation, ucs_status_t status);
  // Closes endpoints whose connection is given up, by force, and forgets those that are closed.
  void Reap();

  static void OnConnected(void* request, ucs_status_t status, void* connection);
  static void OnEnd(void* request, ucs_status_t status, void* operation);
  static void OnFailure(void* connection, ucp_ep_h ep, ucs_status_t status);
  static void OnConnection(ucp_conn_request_h request, void* fabric);
  static ucs_status_t OnNotice(void* fabric, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* how);

  const UcpLibrary& ucp_;
  const bool payloads_on_gpu_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int ready_ = -1;  // UCX's: something has happened
  int wake_ = -1;
  std::string port_;
  std::vector<ucp_mem_h> registered_;
  Endpoint last_ = 0;
  std::map<Endpoint, std::unique_ptr<Connection>> connections_;
  std::vector<ucp_conn_request_h> asking_;  // peers that want to connect
  std::vector<Event> happened_;

  // Names that were looked up, off the link's thread.
  absl::Mutex mutex_;
  std::vector<std::pair<Endpoint, absl::StatusOr<Place>>> found_ ABSL_GUARDED_BY(mutex_);
  const MonotonicClock clock_;
  BlockingCalls lookups_{clock_};
};

}  // namespace baton::transfer
