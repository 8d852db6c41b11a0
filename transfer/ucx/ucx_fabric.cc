#include "transfer/ucx/ucx_fabric.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status.h"

namespace baton::transfer {
namespace {

// The one kind of active message.
constexpr unsigned kNoticeId = 1;
// An idle endpoint to a peer that has died fails after about so long.
constexpr char kKeepalive[] = "2s";
// Notices are a few bytes, and never need a rendezvous. Without this UCX (1.22) refuses each endpoint that
// tells of dead peers, which ours do, the transports of one host whose memory it can't take back from a peer
// (cma, cuda_ipc), for the sake of rendezvous that could be cut off, and emulates reads over TCP.
constexpr char kNoRendezvous[] = "inf";

// The host of "host:port" or "[host]:port".
std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

ucp_request_param_t With(ucp_send_nbx_callback_t callback, void* data) {
  ucp_request_param_t how = {};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.send = callback;
  how.user_data = data;
  return how;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxFabric>> UcxFabric::Create(bool payloads_on_gpu) {
  BATON_ASSIGN_OR_RETURN(const UcpLibrary* const ucp, UcpLibrary::Load());
  auto fabric = std::unique_ptr<UcxFabric>(new UcxFabric(*ucp, payloads_on_gpu));
  BATON_RETURN_IF_ERROR(fabric->Open());
  BATON_RETURN_IF_ERROR(fabric->Listen());
  return fabric;
}

absl::Status UcxFabric::ToStatus(ucs_status_t status, std::string_view doing) const {
  if (status == UCS_OK) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("UCX, {}: {}", doing, ucp_.status_string(status)));
}

absl::Status UcxFabric::Open() {
  ucp_config_t* config = nullptr;
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.config_read(nullptr, nullptr, &config), "reading its settings"));
  ucs_status_t modified = ucp_.config_modify(config, "KEEPALIVE_INTERVAL", kKeepalive);
  if (modified == UCS_OK) modified = ucp_.config_modify(config, "RNDV_THRESH", kNoRendezvous);
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "baton";
  const ucs_status_t made = modified == UCS_OK
                                ? ucp_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_)
                                : modified;
  ucp_.config_release(config);
  BATON_RETURN_IF_ERROR(ToStatus(made, "looking at this machine"));
  if (payloads_on_gpu_) BATON_RETURN_IF_ERROR(CheckReachesGpus());

  ucp_worker_params_t worker = {};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // opened here, used by the link's thread
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.worker_create(context_, &worker, &worker_), "making a worker"));
  ucp_am_handler_param_t handler = {};
  handler.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kNoticeId;
  handler.cb = &UcxFabric::OnNotice;
  handler.arg = this;
  BATON_RETURN_IF_ERROR(
      ToStatus(ucp_.worker_set_am_recv_handler(worker_, &handler), "listening for notices"));
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.worker_get_efd(worker_, &ready_), "asking to be woken"));
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0) return absl::ResourceExhaustedError("ucx link: no file descriptor is left");
  return absl::OkStatus();
}

absl::Status UcxFabric::CheckReachesGpus() const {
  ucp_context_attr_t found = {};
  found.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.context_query(context_, &found), "asking what memory it knows"));
  if ((found.memory_types & (uint64_t{1} << UCS_MEMORY_TYPE_CUDA)) != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "--link ucx: KV is on a GPU, and UCX {} can't reach it: take a UCX that is built with CUDA (the "
      "package libucx-cu13 of PyPI; Debian's is not), with libuct_cuda and libucm_cuda in its module "
      "folder (UCX_MODULE_DIR) and cuda_ipc and cuda_copy among UCX_TLS if that is set, or use --link "
      "host",
      version()));
}

absl::Status UcxFabric::Listen() {
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&any);
  params.sockaddr.addrlen = sizeof any;
  params.conn_handler.cb = &UcxFabric::OnConnection;
  params.conn_handler.arg = this;
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.listener_create(worker_, &params, &listener_), "listening"));
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  BATON_RETURN_IF_ERROR(ToStatus(ucp_.listener_query(listener_, &attributes), "finding its port"));
  port_ = std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(&attributes.sockaddr)->sin_port));
  return absl::OkStatus();
}

UcxFabric::~UcxFabric() {
  lookups_.AwaitIdle(absl::InfiniteDuration());
  // Operations in progress end with the worker.
  for (ucp_conn_request_h request : asking_) (void)ucp_.listener_reject(listener_, request);
  if (listener_ != nullptr) ucp_.listener_destroy(listener_);
  for (auto& [number, connection] : connections_) {
    for (ucp_rkey_h key : connection->keys) {
      if (key != nullptr) ucp_.rkey_destroy(key);
    }
  }
  if (worker_ != nullptr) ucp_.worker_destroy(worker_);
  for (ucp_mem_h memory : registered_) (void)ucp_.mem_unmap(context_, memory);
  if (context_ != nullptr) ucp_.cleanup(context_);
  if (wake_ >= 0) close(wake_);
}

std::string UcxFabric::version() const {
  unsigned major = 0, minor = 0, release = 0;
  ucp_.get_version(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

absl::StatusOr<std::string> UcxFabric::Register(Region region, std::byte* data, int64_t bytes) {
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_PROT | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.memory_type = TypeOf(region);
  params.address = data;
  params.length = static_cast<size_t>(bytes);
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ;
  ucp_mem_h memory = nullptr;
  if (const ucs_status_t mapped = ucp_.mem_map(context_, &params, &memory); mapped != UCS_OK) {
    return absl::ResourceExhaustedError(
        fmt::format("UCX can't register {} bytes ({}): is there a limit on locked memory (ulimit -l)?", bytes,
                    ucp_.status_string(mapped)));
  }
  registered_.push_back(memory);
  void* packed = nullptr;
  size_t size = 0;
  BATON_RETURN_IF_ERROR(
      ToStatus(ucp_.rkey_pack(context_, memory, &packed, &size), "making a key for its memory"));
  std::string key(static_cast<const char*>(packed), size);
  ucp_.rkey_buffer_release(packed);
  return key;
}

absl::StatusOr<Fabric::Endpoint> UcxFabric::Connect(const std::string& from, const std::string& address,
                                                    const std::string& payload_key,
                                                    const std::string& slot_key) {
  const std::string host = HostOf(from);
  if (address.empty() || address.size() > 5 || address.find_first_not_of("0123456789") != std::string::npos) {
    return absl::UnavailableError("the peer names no port to connect to");
  }
  auto made = std::make_unique<Connection>();
  made->fabric = this;
  made->number = ++last_;
  made->packed[0] = payload_key;
  made->packed[1] = slot_key;
  Connection& connection = *connections_.emplace(last_, std::move(made)).first->second;
  // An address is taken at once; a name is looked up by DNS, which may take seconds.
  const auto look_up = [host, address](int flags) -> absl::StatusOr<Place> {
    addrinfo wanted = {}, *found = nullptr;
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags | AI_NUMERICSERV;
    if (const int error = getaddrinfo(host.c_str(), address.c_str(), &wanted, &found); error != 0) {
      return absl::UnavailableError(fmt::format("no IPv4 address of {}: {}", host, gai_strerror(error)));
    }
    Place place;
    place.bytes = found->ai_addrlen;
    std::memcpy(&place.address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return place;
  };
  if (const absl::StatusOr<Place> place = look_up(AI_NUMERICHOST); place.ok()) {
    Dial(connection, *place);
  } else {
    lookups_.Run([this, number = connection.number, look_up] {
      absl::StatusOr<Place> found = look_up(0);
      {
        absl::MutexLock lock(&mutex_);
        found_.emplace_back(number, std::move(found));
      }
      Wake();
    });
  }
  return connection.number;
}

void UcxFabric::Dial(Connection& connection, const Place& place) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&place.address);
  params.sockaddr.addrlen = place.bytes;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxFabric::OnFailure;
  params.err_handler.arg = &connection;
  if (const ucs_status_t made = ucp_.ep_create(worker_, &params, &connection.ep); made != UCS_OK) {
    connection.ep = nullptr;
    Failed(connection, ToStatus(made, "connecting to the peer"));
    return;
  }
  AwaitConnected(connection);
}

void UcxFabric::AwaitConnected(Connection& connection) {
  ++connection.operations;
  const ucp_request_param_t how = With(&UcxFabric::OnConnected, &connection);
  const ucs_status_ptr_t flushing = ucp_.ep_flush_nbx(connection.ep, &how);
  if (!UCS_PTR_IS_PTR(flushing)) Connected(connection, UCS_PTR_STATUS(flushing));
}

void UcxFabric::OnConnected(void* request, ucs_status_t status, void* data) {
  auto& connection = *static_cast<Connection*>(data);
  connection.fabric->ucp_.request_free(request);
  connection.fabric->Connected(connection, status);
}

void UcxFabric::Connected(Connection& connection, ucs_status_t status) {
  --connection.operations;
  connection.settled = true;
  if (connection.closed || connection.accepted) return;  // OnFailure tells of an accepted one
  absl::Status taken = ToStatus(status, "connecting to the peer");
  for (int i = 0; i < 2 && taken.ok(); ++i) {
    taken = ToStatus(ucp_.ep_rkey_unpack(connection.ep, connection.packed[i].data(), &connection.keys[i]),
                     "taking a key");
  }
  if (!taken.ok()) {
    Failed(connection, std::move(taken));
    return;
  }
  connection.connected = true;
  for (auto& operation : std::exchange(connection.waiting, {})) Begin(connection, std::move(operation));
}

void UcxFabric::Failed(Connection& connection, absl::Status status) {
  if (connection.closed) return;
  happened_.push_back(
      {.kind = Event::Kind::kFailed, .number = connection.number, .status = std::move(status), .notice = {}});
}

void UcxFabric::OnFailure(void* data, ucp_ep_h, ucs_status_t status) {
  auto& connection = *static_cast<Connection*>(data);
  connection.fabric->Failed(connection, connection.fabric->ToStatus(status, "reaching the peer"));
}

void UcxFabric::OnConnection(ucp_conn_request_h request, void* data) {
  static_cast<UcxFabric*>(data)->asking_.push_back(request);
}

void UcxFabric::Accept(ucp_conn_request_h request) {
  auto made = std::make_unique<Connection>();
  made->fabric = this;
  made->number = ++last_;
  made->accepted = true;
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxFabric::OnFailure;
  params.err_handler.arg = made.get();
  // A failure is the peer's to notice.
  if (ucp_.ep_create(worker_, &params, &made->ep) != UCS_OK) return;
  AwaitConnected(*connections_.emplace(last_, std::move(made)).first->second);
}

void UcxFabric::Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
                     uint64_t number) {
  auto operation = std::make_unique<Operation>();
  operation->number = number;
  operation->region = region;
  operation->from = from;
  operation->to = to;
  operation->bytes = bytes;
  Add(endpoint, std::move(operation));
}

void UcxFabric::Notify(Endpoint endpoint, std::string_view notice) {
  auto operation = std::make_unique<Operation>();
  operation->notice = notice;
  Add(endpoint, std::move(operation));
}

void UcxFabric::Add(Endpoint endpoint, std::unique_ptr<Operation> operation) {
  operation->fabric = this;
  operation->connection = endpoint;
  const auto found = connections_.find(endpoint);
  if (found == connections_.end() || found->second->closed) {
    Ended(std::move(operation), UCS_ERR_CANCELED);
  } else if (found->second->connected) {
    Begin(*found->second, std::move(operation));
  } else {
    found->second->waiting.push_back(std::move(operation));
  }
}

void UcxFabric::Begin(Connection& connection, std::unique_ptr<Operation> operation) {
  ++connection.operations;
  Operation* const own = operation.release();
  ucp_request_param_t how = With(&UcxFabric::OnEnd, own);
  how.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  how.memory_type = own->notice.empty() ? TypeOf(own->region) : UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t begun =
      own->notice.empty() ? ucp_.get_nbx(connection.ep, own->to, static_cast<size_t>(own->bytes), own->from,
                                         connection.keys[own->region == Region::kPayloads ? 0 : 1], &how)
                          : ucp_.am_send_nbx(connection.ep, kNoticeId, own->notice.data(), own->notice.size(),
                                             nullptr, 0, &how);
  if (UCS_PTR_IS_PTR(begun)) return;  // OnEnd comes
  --connection.operations;
  Ended(std::unique_ptr<Operation>(own), UCS_PTR_STATUS(begun));
}

void UcxFabric::OnEnd(void* request, ucs_status_t status, void* data) {
  std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  UcxFabric& fabric = *operation->fabric;
  --fabric.connections_.at(operation->connection)->operations;
  fabric.Ended(std::move(operation), status);
  fabric.ucp_.request_free(request);
}

void UcxFabric::Ended(std::unique_ptr<Operation> operation, ucs_status_t status) {
  if (!operation->notice.empty()) return;  // a connection that fails tells by itself
  happened_.push_back({.kind = Event::Kind::kRead,
                       .number = operation->number,
                       .status = ToStatus(status, "reading"),
                       .notice = {}});
}

ucs_status_t UcxFabric::OnNotice(void* data, const void* header, size_t header_bytes, void*, size_t,
                                 const ucp_am_recv_param_t*) {
  static_cast<UcxFabric*>(data)->happened_.push_back(
      {.kind = Event::Kind::kNotice,
       .status = {},
       .notice = std::string(static_cast<const char*>(header), header_bytes)});
  return UCS_OK;
}

void UcxFabric::Close(Endpoint endpoint) {
  const auto found = connections_.find(endpoint);
  if (found == connections_.end() || found->second->closed) return;
  Connection& connection = *found->second;
  connection.closed = true;
  for (auto& operation : std::exchange(connection.waiting, {})) {
    Ended(std::move(operation), UCS_ERR_CANCELED);
  }
}

void UcxFabric::Reap() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = *it->second;
    if (connection.closed && connection.settled && connection.ep != nullptr) {
      ucp_request_param_t how = {};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      const ucs_status_ptr_t closing = ucp_.ep_close_nbx(std::exchange(connection.ep, nullptr), &how);
      if (UCS_PTR_IS_PTR(closing)) connection.closing = closing;
    }
    if (connection.closing != nullptr && ucp_.request_check_status(connection.closing) != UCS_INPROGRESS) {
      ucp_.request_free(std::exchange(connection.closing, nullptr));
    }
    if (!connection.closed || connection.ep != nullptr || connection.closing != nullptr ||
        connection.operations > 0) {
      ++it;
      continue;
    }
    for (ucp_rkey_h key : connection.keys) {
      if (key != nullptr) ucp_.rkey_destroy(key);
    }
    it = connections_.erase(it);
  }
}

void UcxFabric::Progress(std::vector<Event>& events) {
  while (ucp_.worker_progress(worker_) != 0) {
  }
  for (ucp_conn_request_h request : std::exchange(asking_, {})) Accept(request);
  std::vector<std::pair<Endpoint, absl::StatusOr<Place>>> found;
  {
    absl::MutexLock lock(&mutex_);
    found.swap(found_);
  }
  for (auto& [number, place] : found) {
    const auto connection = connections_.find(number);
    if (connection == connections_.end() || connection->second->closed) continue;
    if (place.ok()) {
      Dial(*connection->second, *place);
    } else {
      Failed(*connection->second, place.status());
    }
  }
  for (Event& event : std::exchange(happened_, {})) {
    const auto failed =
        event.kind == Event::Kind::kFailed ? connections_.find(event.number) : connections_.end();
    if (failed != connections_.end() && failed->second->accepted) {
      Close(event.number);  // a peer that read from here has left
    } else {
      events.push_back(std::move(event));
    }
  }
  Reap();
}

bool UcxFabric::idle() const {
  return happened_.empty() && std::ranges::all_of(connections_, [](const auto& entry) {
           return !entry.second->closed && entry.second->operations == 0 && entry.second->waiting.empty();
         });
}

void UcxFabric::Wait(absl::Duration most) {
  if (!happened_.empty()) return;
  const ucs_status_t armed = ucp_.worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return;  // there is something to move on
  pollfd descriptors[] = {{.fd = wake_, .events = POLLIN, .revents = 0},
                          {.fd = ready_, .events = POLLIN, .revents = 0}};
  const timespec time = absl::ToTimespec(most);
  if (ppoll(descriptors, armed == UCS_OK ? 2 : 1, &time, nullptr) > 0 && descriptors[0].revents != 0) {
    uint64_t count = 0;
    (void)!read(wake_, &count, sizeof count);
  }
}

void UcxFabric::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof one);
}

}  // namespace baton::transfer
