// RequestDriver's part in answers that are held: how a request joins one, by its key or its name, and how a
// call that reads one comes to compute it.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "protocol/client/limits.h"
#include "router/api/request_driver.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

// A digest of the request but for its seed and its build, of the bound of its answer, and of the tenant.
template <typename Request>
std::string DigestOf(const Request& request, uint32_t max_answer_bytes, const kv::TenantSalt& salt) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    Request undrawn = request;
    undrawn.mutable_sampling()->clear_seed();
    undrawn.mutable_options()->clear_build();
    coded.WriteString(undrawn.GetDescriptor()->full_name());
    coded.WriteVarint32(max_answer_bytes);
    undrawn.SerializeToCodedStream(&coded);
  }
  return Sha256Of(bytes + salt.bytes());
}

// Once more, as it was drawn before. Its deltas end at every token: a client may come from another router, or
// from an answer that was computed anew, and stop wherever a delta ended there.
template <typename Request>
void DrawAs(const std::optional<Drawn>& drawn, Request* request) {
  if (drawn.has_value()) {
    request->mutable_sampling()->set_seed(*drawn->seed);
    request->mutable_options()->set_build(drawn->build);
  }
  request->mutable_output()->set_even_frames(true);
}

template <typename Request>
Drawn AskedOf(const Request& request) {
  Drawn asked{.seed = std::nullopt, .build = request.options().build()};
  if (request.sampling().has_seed()) asked.seed = request.sampling().seed();
  return asked;
}

// Names of requests, as this router's own: 16 hexadecimal digits.
bool IsRequestId(std::string_view id) {
  return id.size() == 16 &&
         std::ranges::all_of(id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

template <typename Request>
bool RequestDriver::Begin(size_t bytes, const std::shared_ptr<Request>& request, bool at_once) {
  const std::string& key = request->options().idempotency_key();
  const bool not_held = request->options().not_held();
  if (!key.empty() && not_held && context_.ledger != nullptr) {
    HeldAnswer::Name name{.tenant = tenant_->id,
                          .id = "",
                          .key = key,
                          .digest = DigestOf(*request, max_answer_bytes_, tenant_->salt)};
    Post([this, name = std::move(name)](RequestFlow&) -> Actions {
      not_held_ = name;
      return {};
    });
  }
  if (not_held) request->mutable_output()->set_even_frames(true);  // as DrawAs; after the digest
  if (key.empty() || not_held || context_.held == nullptr) {
    if (at_once) return PrepareOrCompile(bytes, request);
    Compute(bytes, request);
    return true;
  }
  FindAnswer find = [this, key, asked = AskedOf(*request),
                     digest = DigestOf(*request, max_answer_bytes_, tenant_->salt)] {
    return context_.held->ByKey(tenant_->id, key, digest, asked, flow_.request_id());
  };
  Join(std::move(find), {}, [this, bytes, request](const std::optional<Drawn>& drawn) {
    DrawAs(drawn, request.get());
    Compute(bytes, request);
  });
  return true;
}

template bool RequestDriver::Begin(size_t, const std::shared_ptr<v1::GenerateRequest>&, bool);
template bool RequestDriver::Begin(size_t, const std::shared_ptr<v1::ChatRequest>&, bool);

void RequestDriver::Resume(const Credentials& credentials, size_t bytes, Parse<v1::ResumeRequest> parse) {
  if (!FindCaller(credentials)) return;
  const auto read = [this, bytes, parse = std::move(parse)] {
    if (absl::Status status = ReadResume(bytes, parse); !status.ok()) Refuse(std::move(status));
    return true;
  };
  if (bytes <= Executor::kLargeBytes) {
    read();
  } else if (!context_.executor->TrySubmit(JobOf(bytes, read))) {
    Refuse(context_.executor->Full());
  }
}

absl::Status RequestDriver::ReadResume(size_t bytes, const Parse<v1::ResumeRequest>& parse) {
  v1::ResumeRequest resumed;
  BATON_RETURN_IF_ERROR(parse(&resumed));
  if (!IsRequestId(resumed.request_id())) {
    return absl::InvalidArgumentError(
        "request_id: not the name of a request; give Started.request_id, or the metadata baton-request-id");
  }
  if (resumed.after_tokens_size() > int{protocol::kMaxChoices}) {
    return absl::InvalidArgumentError(fmt::format("after_tokens: {} choices, a request has at most {}",
                                                  resumed.after_tokens_size(), protocol::kMaxChoices));
  }
  if (context_.held == nullptr) return absl::UnimplementedError("this router holds no answers");
  switch (resumed.request_case()) {
    case v1::ResumeRequest::kChat:
      return ResumeWith(resumed, bytes, std::move(*resumed.mutable_chat()));
    case v1::ResumeRequest::kGenerate:
      return ResumeWith(resumed, bytes, std::move(*resumed.mutable_generate()));
    default:
      break;
  }
  FindAnswer find = [this, id = resumed.request_id()]() -> absl::StatusOr<std::shared_ptr<HeldAnswer>> {
    std::shared_ptr<HeldAnswer> answer = context_.held->ById(tenant_->id, id);
    if (answer == nullptr) return HeldAnswer::NotHeld();
    return answer;
  };
  Join(std::move(find), {resumed.after_tokens().begin(), resumed.after_tokens().end()}, nullptr);
  return absl::OkStatus();
}

template <typename Request>
absl::Status RequestDriver::ResumeWith(const v1::ResumeRequest& resumed, size_t bytes, Request request) {
  const auto held = std::make_shared<Request>(std::move(request));
  if (!held->sampling().has_seed()) {
    return absl::InvalidArgumentError("sampling.seed: missing; give Started.seed, or no request");
  }
  if (held->options().build().empty()) {
    return absl::InvalidArgumentError("options.build: missing; give Started.build, or no request");
  }
  BATON_RETURN_IF_ERROR(Check(held.get()));
  FindAnswer find = [this, id = resumed.request_id(), key = held->options().idempotency_key(),
                     asked = AskedOf(*held), digest = DigestOf(*held, 0, tenant_->salt),
                     not_held = held->options().not_held()] {
    return context_.held->ByIdOrNew(tenant_->id, id, key, digest, asked, not_held);
  };
  Join(std::move(find), {resumed.after_tokens().begin(), resumed.after_tokens().end()},
       [this, bytes, held](const std::optional<Drawn>& drawn) {
         DrawAs(drawn, held.get());
         Compute(bytes, held);
       });
  return absl::OkStatus();
}

void RequestDriver::Join(FindAnswer find, std::vector<uint32_t> after, ComputeAnew compute) {
  Post([this, find = std::move(find), after = std::move(after),
        compute = std::move(compute)](RequestFlow& flow) -> Actions {
    if (flow.ended()) return {};
    compute_ = compute;
    while (true) {
      const auto answer = find();
      if (!answer.ok()) return flow.OnPrepared(answer.status());
      // A request of its own is admitted as one.
      if (!(*answer)->IsNew()) {
        if (absl::Status status = context_.fleets.front().dispatcher->AdmitCheapCall(tenant_->id);
            !status.ok()) {
          return flow.OnPrepared(std::move(status));
        }
      }
      const std::string own = flow.request_id();
      flow.Rename((*answer)->name().id);
      held_ = *answer;
      std::shared_ptr<ClientStream> client = std::exchange(client_, held_);
      const HeldAnswer::Joined joined = held_->Join(client, shared_from_this(), after, compute_ != nullptr);
      reader_ = joined.reader;
      if (reader_ != nullptr) {
        if (!joined.may_begin) compute_ = nullptr;
        return {};
      }
      // It has gone meanwhile, or nobody can go on with it.
      client_ = std::move(client);
      held_ = nullptr;
      flow.Rename(own);
      if (compute_ == nullptr) return flow.OnPrepared(HeldAnswer::NotHeld());
    }
  });
}

void RequestDriver::Produce(std::optional<Begun> begun, std::optional<Drawn> drawn,
                            const billing::TokenCounts& charged) {
  auto held = std::make_shared<std::optional<Begun>>(std::move(begun));
  Post([this, held, drawn = std::move(drawn), charged](RequestFlow& flow) -> Actions {
    charged_ = charged;
    const ComputeAnew compute = std::exchange(compute_, nullptr);
    if (flow.ended()) return {};
    if (held->has_value()) return flow.OnBegun(*std::move(*held));
    compute(drawn);
    return {};
  });
}

void RequestDriver::OnTaken() {
  Post([](RequestFlow& flow) { return flow.OnWritten(true); });
}

void RequestDriver::OnUnread() {
  cancelled_.store(true, std::memory_order_relaxed);
  Post([](RequestFlow& flow) { return flow.OnCancelled(); });
}

void RequestDriver::OnServed(const absl::Status& status) {
  Post([this, status](RequestFlow& flow) -> Actions {
    if (flow.ended()) return {};
    flow.OnServed(status);
    compute_ = nullptr;
    if (context_.ledger != nullptr) context_.ledger->Record(RecordOf(status.code()), [] {});
    return {};
  });
}

}  // namespace baton::router
