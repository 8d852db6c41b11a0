#include "router/api/generate_call.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpcpp/channel.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/kv/index/block_hash.h"
#include "common/rpc/status.h"
#include "router/api/wire.h"

namespace baton::router {
namespace {

// A message of at most so many bytes is parsed and checked where it comes in, in some 100 us; a larger one on
// the executor.
constexpr size_t kReadAtOnceBytes = Executor::kLargeBytes;

bool NeedsTokenizer(const v1::GenerateRequest& request) { return !request.has_token_ids(); }
bool NeedsTokenizer(const v1::ChatRequest&) { return true; }

// gRPC's deadline on our clock.
absl::Time OnClock(const Clock& clock, std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return clock.Now() + absl::FromChrono(deadline - std::chrono::system_clock::now());
}

// The hashes of the prompt's blocks as the workers make them.
std::vector<kv::BlockHash> ChainOf(const v1::DecodeRequest& request, const std::string& domain) {
  if (domain.empty()) return {};  // nobody is up, or nobody says
  static_assert(sizeof(TokenId) == sizeof(int32_t));
  const std::span tokens(reinterpret_cast<const TokenId*>(request.token_ids().data()),
                         request.token_ids_size() - request.resumed_tokens());
  return kv::HashChain(kv::RootHash(domain, kv::TenantSalt(request.salt())), tokens);
}

}  // namespace

template <typename Request>
grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start(const CallContext* context,
                                                                grpc::CallbackServerContext* server_context,
                                                                const grpc::ByteBuffer& bytes) {
  auto call = std::shared_ptr<GenerateCall>(new GenerateCall(context, server_context));
  call->self_ = call;
  call->Receive<Request>(*server_context, bytes);
  return call.get();
}

template grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start<v1::GenerateRequest>(
    const CallContext*, grpc::CallbackServerContext*, const grpc::ByteBuffer&);
template grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::Start<v1::ChatRequest>(
    const CallContext*, grpc::CallbackServerContext*, const grpc::ByteBuffer&);

GenerateCall::GenerateCall(const CallContext* context, grpc::CallbackServerContext* server_context)
    : context_(context),
      server_context_(server_context),
      alive_(context->live, this),
      wire_deadline_(server_context->deadline()),
      flow_({.request_id = fmt::format("{:016x}", RandomU64()),
             .router_id = context->router_id,
             .max_attempts = context->max_attempts,
             .max_migrations = context->max_migrations,
             .arrival = context->clock->Now(),
             .deadline = OnClock(*context->clock, wire_deadline_),
             .client_stall = context->client_stall},
            context->clock, context->probe) {}

template <typename Request>
void GenerateCall::Receive(const grpc::ServerContextBase& server_context, const grpc::ByteBuffer& bytes) {
  auto tenant = context_->authenticator->Authenticate(server_context);
  if (!tenant.ok()) return Refuse(tenant.status());
  tenant_ = *std::move(tenant);
  auto request = std::make_shared<Request>();
  const bool read = bytes.Length() <= kReadAtOnceBytes;
  if (read) {
    if (absl::Status status = Read(bytes, request.get()); !status.ok()) return Refuse(std::move(status));
    if (!NeedsTokenizer(*request)) {
      Prepare(*request);
      return;
    }
  }
  const std::shared_ptr<GenerateCall> self = shared_from_this();
  Executor::Job job;
  job.tenant = tenant_->id;
  job.bytes = bytes.Length();
  job.wanted = [self] { return self->Wanted(); };
  if (read) {
    job.work = [self, request] { return self->Prepare(*request); };
  } else {
    // The call's own bytes go with the call, which a dropped job may outlive.
    job.work = [self, request, bytes = std::make_shared<grpc::ByteBuffer>(bytes)] {
      absl::Status status = self->Read(*bytes, request.get());
      bytes->Clear();
      if (status.ok()) return self->Prepare(*request);
      self->Refuse(std::move(status));
      return true;
    };
  }
  job.drop = [self] {
    self->Refuse(absl::CancelledError("the call was over before its prompt was prepared"));
  };
  if (!context_->executor->TrySubmit(std::move(job))) Refuse(context_->executor->Full());
}

template <typename Request>
absl::Status GenerateCall::Read(const grpc::ByteBuffer& bytes, Request* request) const {
  BATON_RETURN_IF_ERROR(ParseMessage(bytes, request));
  BATON_RETURN_IF_ERROR(context_->preparer->Check(*request));
  return context_->authenticator->CheckPriority(*tenant_, request->options().priority());
}

template <typename Request>
bool GenerateCall::Prepare(const Request& request) {
  auto prepared = std::make_shared<absl::StatusOr<Prepared>>(
      context_->preparer->Prepare(request, *tenant_, [this] { return Wanted(); }));
  const bool finished = !absl::IsCancelled(prepared->status());
  Post([prepared](RequestFlow& flow) { return flow.OnPrepared(std::move(*prepared)); });
  return finished;
}

void GenerateCall::Refuse(absl::Status status) {
  Post([status = std::move(status)](RequestFlow& flow) { return flow.OnPrepared(status); });
}

bool GenerateCall::Wanted() const {
  return !cancelled_.load(std::memory_order_relaxed) && context_->clock->Now() < flow_.options().deadline;
}

void GenerateCall::Post(Event event) {
  const std::shared_ptr<GenerateCall> self = shared_from_this();
  {
    absl::MutexLock lock(&mutex_);
    inbox_.push_back(std::move(event));
    if (draining_) return;
    draining_ = true;
  }
  while (true) {
    Event next;
    {
      absl::MutexLock lock(&mutex_);
      if (inbox_.empty()) {
        draining_ = false;
        return;
      }
      next = std::move(inbox_.front());
      inbox_.pop_front();
    }
    Actions actions = next(flow_);
    for (Action& action : actions) Perform(action);
  }
}

void GenerateCall::Perform(Action& action) {
  std::visit([this](auto& one) { Do(one); }, action);
}

void GenerateCall::Do(Submit&) {
  const v1::DecodeRequest& request = flow_.prepared().request;
  request_ = std::make_shared<DispatchRequest>();
  request_->tenant = tenant_->id;
  request_->choices = flow_.prepared().choices;
  request_->placement.prompt_tokens = request.token_ids_size();
  request_->placement.max_tokens = request.stop().max_tokens();
  request_->bytes = static_cast<int64_t>(request.token_ids_size() * sizeof(int32_t));
  request_->placement.arrival = flow_.options().arrival;
  request_->placement.deadline = flow_.options().deadline;
  request_->placement.session = flow_.prepared().session;
  request_->debug = flow_.prepared().debug;
  request_->chain = ChainOf(request, context_->fleet->view()->block_hash_domain);
  request_->priority = request.priority();
  request_->deadline = flow_.options().deadline;
  request_->result = [self = shared_from_this()](int choice, absl::StatusOr<Placement> result) {
    auto placement = std::make_shared<absl::StatusOr<Placement>>(std::move(result));
    self->Post(
        [choice, placement](RequestFlow& flow) { return flow.OnPlaced(choice, std::move(*placement)); });
  };
  streams_.resize(request_->choices);
  auto entries = context_->dispatcher->Submit(request_);
  if (entries.ok()) {
    entries_ = *std::move(entries);
    account_ = entries_.front();
  } else {
    Post([status = entries.status()](RequestFlow& flow) { return flow.OnNotAdmitted(status); });
  }
}

void GenerateCall::Do(Requeue& requeue) {
  context_->dispatcher->Requeue(entries_[requeue.choice], request_, requeue.choice, std::move(requeue.avoid),
                                requeue.begun);
}

void GenerateCall::Do(Withdraw&) {
  for (admission::EntryId entry : entries_) context_->dispatcher->Withdraw(entry);
  entries_.clear();
  request_ = nullptr;  // it holds this call
}

void GenerateCall::Do(Dial& dial) {
  auto client_context = std::make_unique<grpc::ClientContext>();
  client_context->set_deadline(wire_deadline_);
  const int choice = dial.choice, attempt = dial.attempt;
  const std::shared_ptr<grpc::Channel>& channel = dial.worker->identity().channel;
  BATON_CHECK(channel != nullptr);
  v1::Decode::Stub stub(channel);  // the call keeps the channel, and needs no stub once it has begun
  streams_[choice] = Stream::Call(std::move(dial.request), std::move(client_context),
                                  {.event =
                                       [self = shared_from_this(), choice, attempt](v1::DecodeEvent event) {
                                         auto held = std::make_shared<v1::DecodeEvent>(std::move(event));
                                         self->Post([choice, attempt, held](RequestFlow& flow) {
                                           return flow.OnDecodeEvent(choice, attempt, std::move(*held));
                                         });
                                       },
                                   .done =
                                       [self = shared_from_this(), choice, attempt](absl::Status status) {
                                         self->Post([choice, attempt, status](RequestFlow& flow) {
                                           return flow.OnDecodeEnd(choice, attempt, status);
                                         });
                                       }},
                                  [&stub](auto* context, auto* request, auto* reactor) {
                                    stub.async()->Generate(context, request, reactor);
                                  });
}

void GenerateCall::Do(ReadNext& next) { streams_[next.choice]->Next(); }

void GenerateCall::Do(HangUp& hang_up) { streams_[hang_up.choice]->Cancel(); }

void GenerateCall::Serialize(const v1::GenerateResponse& response) {
  outgoing_ = SerializeMessage(response);
  writing_since_.store(absl::ToUnixNanos(context_->clock->Now()), std::memory_order_relaxed);
}

void GenerateCall::Do(Write& write) {
  Serialize(write.response);
  grpc::WriteOptions options;
  if (write.more) options.set_buffer_hint();  // both in one packet
  StartWrite(&outgoing_, options);
}

void GenerateCall::Do(WriteLast& last) {
  Settle();
  Serialize(last.response);
  StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
}

// Finish() would wait behind the message that the client doesn't take. Core's own cancellation sends the
// status at once, past flow control, and drops the message.
void GenerateCall::Do(Break& break_off) {
  grpc_call_cancel_with_status(server_context_->c_call(),
                               static_cast<grpc_status_code>(break_off.status.code()),
                               std::string(break_off.status.message()).c_str(), nullptr);
}

void GenerateCall::Settle() {
  request_ = nullptr;
  if (account_.has_value()) context_->dispatcher->Settle(*account_, flow_.Used());
  account_.reset();
}

void GenerateCall::Do(router::Finish& finish) {
  Settle();
  grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(rpc::ToGrpc(finish.status));
}

void GenerateCall::OnWriteDone(bool ok) {
  writing_since_.store(0, std::memory_order_relaxed);
  Post([ok](RequestFlow& flow) { return flow.OnWritten(ok); });
}

void GenerateCall::OnCancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  Post([](RequestFlow& flow) { return flow.OnCancelled(); });
}

std::function<void()> GenerateCall::IfStalled(absl::Time now) {
  const int64_t since = writing_since_.load(std::memory_order_relaxed);
  if (since == 0 || now - absl::FromUnixNanos(since) < context_->client_stall) return nullptr;
  std::shared_ptr<GenerateCall> self = weak_from_this().lock();
  if (self == nullptr) return nullptr;
  return [self] { self->Post([](RequestFlow& flow) { return flow.OnMaybeStalled(); }); };
}

void GenerateCall::OnDone() {
  // Whoever is still in Post() holds the call too.
  const std::shared_ptr<GenerateCall> self = std::move(self_);
}

}  // namespace baton::router
