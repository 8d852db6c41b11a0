#include "worker/kv_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "spdlog/spdlog.h"
#include "worker/link_machine.h"

namespace baton::worker {
namespace {

// Staging memory of a worker, at most, unless eight blocks take more. A step whose KV finds no room gets
// fewer rows: 1 GiB, the share of a sender's only receiver, is 3,276 tokens of a 70B in bf16, enough for
// matrix products to be bound by arithmetic.
constexpr int64_t kMostStagingBytes = int64_t{2} << 30;

// For the host link: a step's chunks and as many that have not left yet, or what there is: with less, steps
// only wait for room.
constexpr int64_t kLeastHostStaging = int64_t{64} << 20, kMostHostStaging = int64_t{512} << 20;

int64_t HostStagingFor(const LinkOptions& options, const kv::KvLayout& layout, const device::Memory& memory) {
  const int64_t token_bytes = (layout.block_bytes() + kBlockTokens - 1) / kBlockTokens;
  const int64_t shipped = options.name == "host" ? 2 * options.step_tokens * token_bytes : 0;
  const int64_t most = std::max(kLeastHostStaging, std::min(kMostHostStaging, memory.available() / 4));
  return std::max(std::clamp(shipped, kLeastHostStaging, most), 8 * layout.block_bytes());
}

}  // namespace

int64_t KvLink::StagingBytes(int64_t step_tokens, const kv::KvLayout& layout) {
  const int64_t token_bytes = (layout.block_bytes() + kBlockTokens - 1) / kBlockTokens;
  const int64_t wanted = std::min(kMostStagingBytes, 4 * step_tokens * token_bytes);
  return std::max({transfer::NcclLinkOptions().staging_bytes, wanted, 8 * layout.block_bytes()});
}

absl::StatusOr<KvLink::Libraries> KvLink::Open(const LinkOptions& options, engine::Engine& engine) {
  Libraries libraries;
  if (options.name == "host") return libraries;
  const std::string missing =
      fmt::format("--link {}: this process has no such link: use --link host", options.name);
  if (options.name == "nccl") {
    if (options.open_nccl == nullptr) return absl::FailedPreconditionError(missing);
    LinkMachine machine = LookAtMachine();
    for (const device::Memory* memory : engine.memories()) machine.memories.push_back(memory->name());
    BATON_RETURN_IF_ERROR(CheckLinkMachine(machine, options.rdma));
    BATON_ASSIGN_OR_RETURN(libraries.nccl, options.open_nccl(engine.memories()));
    libraries.pairing = transfer::NcclLink::Pairing(libraries.nccl->version());
    return libraries;
  }
  if (options.name == "ucx") {
    if (options.open_ucx == nullptr) return absl::FailedPreconditionError(missing);
    BATON_ASSIGN_OR_RETURN(libraries.ucx, options.open_ucx(engine.memories()));
    libraries.pairing = transfer::UcxLink::Pairing(libraries.ucx->fabric->version(), libraries.ucx->place);
    return libraries;
  }
  return absl::InvalidArgumentError(fmt::format("--link {}: use host, nccl or ucx", options.name));
}

absl::StatusOr<std::unique_ptr<KvLink>> KvLink::Create(const LinkOptions& options, Libraries libraries,
                                                       engine::Engine& engine, engine::Loop& loop,
                                                       const Clock& clock, Incarnation self,
                                                       telemetry::Metrics& metrics) {
  auto link = std::unique_ptr<KvLink>(new KvLink(options, metrics));
  BATON_RETURN_IF_ERROR(link->OpenHostLink(options, engine, loop));
  if (libraries.nccl != nullptr) {
    BATON_RETURN_IF_ERROR(link->MakeNcclLink(options, std::move(libraries), engine, loop, clock, self));
  }
  if (libraries.ucx.has_value()) {
    BATON_RETURN_IF_ERROR(link->MakeUcxLink(options, *std::move(libraries.ucx), engine, loop, clock, self));
  }
  return link;
}

absl::StatusOr<std::unique_ptr<transfer::NcclLog>> KvLink::OpenLog(const LinkOptions& options) {
  if (options.name != "nccl") return nullptr;
  return transfer::NcclLog::Open();
}

absl::Status KvLink::MakeNcclLink(const LinkOptions& options, Libraries libraries, engine::Engine& engine,
                                  engine::Loop& loop, const Clock& clock, Incarnation self) {
  nccl_ = std::move(libraries.nccl);
  log_ = std::move(libraries.nccl_log);
  if (log_.ok() && *log_ != nullptr) (*log_)->Restart();  // the ranks' own are apart
  transfer::NcclLinkOptions nccl;
  nccl.version = nccl_->version();
  nccl.pairs.max_open = options.max_pairs;
  nccl.pairs.max_receiving = 2 * options.max_pairs;
  nccl.most_receiving =
      static_cast<size_t>(std::max(1, options.receive_blocks / std::max(1, nccl_->channels())));
  nccl.pairs.transfer_timeout = absl::Seconds(options.timeout_seconds);
  // The first join of a process loads libraries and looks at the machine, beside others that do.
  nccl.pairs.join_timeout = std::max(nccl.pairs.join_timeout, 2 * nccl.pairs.transfer_timeout);
  nccl.staging_bytes = StagingBytes(options.step_tokens, engine.store().layout());
  BATON_ASSIGN_OR_RETURN(
      nccl_link_, transfer::NcclLink::Create(
                      nccl_->Api(), nccl_->payload(), clock, self,
                      [&loop](absl::AnyInvocable<void()> task) { return loop.PostAlways(std::move(task)); },
                      [this](const std::string& address, const transfer::Meeting& meeting,
                             transfer::LinkSender::Answer answer) {
                        if (ask_ != nullptr) {
                          ask_(address, meeting, std::move(answer));
                        } else {
                          answer(absl::FailedPreconditionError("this worker receives no KV"));
                        }
                      },
                      nccl));
  return absl::OkStatus();
}

absl::Status KvLink::MakeUcxLink(const LinkOptions& options, transfer::Ucx opened, engine::Engine& engine,
                                 engine::Loop& loop, const Clock& clock, Incarnation self) {
  ucx_payload_ = std::move(opened.payload);
  transfer::UcxLinkOptions ucx;
  ucx.place = opened.place;
  ucx.reads.timeout = absl::Seconds(options.timeout_seconds);
  ucx.staging_bytes = StagingBytes(options.step_tokens, engine.store().layout());
  BATON_ASSIGN_OR_RETURN(
      ucx_link_,
      transfer::UcxLink::Create(
          std::move(opened.fabric), *ucx_payload_, clock, self,
          [&loop](absl::AnyInvocable<void()> task) { return loop.PostAlways(std::move(task)); }, ucx));
  return absl::OkStatus();
}

absl::Status KvLink::OpenHostLink(const LinkOptions& options, engine::Engine& engine, engine::Loop& loop) {
  device::Memory& memory = engine.store().memory();
  if (memory.host()) {
    host_sender_ = std::make_unique<transfer::HostLinkSender>();
    host_receiver_ = std::make_unique<transfer::HostLinkReceiver>();
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(
      auto sender, transfer::StagedHostLinkSender::Create(
                       memory, HostStagingFor(options, engine.store().layout(), *engine.memories().front()),
                       [&loop] { (void)loop.PostAlways([] {}); }));
  auto receiver = std::make_unique<transfer::StagedHostLinkReceiver>(
      memory, [&loop](absl::AnyInvocable<void()> task) { return loop.PostAlways(std::move(task)); });
  staged_sender_ = sender.get();
  staged_receiver_ = receiver.get();
  host_sender_ = std::move(sender);
  host_receiver_ = std::move(receiver);
  return absl::OkStatus();
}

transfer::LinkSender& KvLink::sender() {
  if (nccl_link_ != nullptr) return *nccl_link_;
  if (ucx_link_ != nullptr) return *ucx_link_;
  return *host_sender_;
}

transfer::LinkReceiver& KvLink::receiver() {
  if (nccl_link_ != nullptr) return *nccl_link_;
  if (ucx_link_ != nullptr) return *ucx_link_;
  return *host_receiver_;
}

void KvLink::Observe() {
  if (ucx_link_ != nullptr) probe_.Counted(ucx_link_->counts());
  if (nccl_link_ == nullptr) return;
  probe_.Counted(nccl_link_->counts());
  if (!log_.ok() || *log_ == nullptr) return;
  for (const std::string& line : (*log_)->Read()) spdlog::warn("{}", line);
  for (const auto& [transport, count] : (*log_)->channels()) {
    int64_t& before = channels_[transport];
    if (count == before) continue;
    if (before == 0) spdlog::info("the nccl link: NCCL carries KV by {}", transport);
    probe_.Connected(transport, count - before);
    before = count;
  }
}

absl::Status KvLink::CheckTransport(std::string_view asked) {
  if (asked == "any") return absl::OkStatus();
  if (nccl_link_ == nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "--link-transport {} is a promise of --link nccl, and this worker has another link", asked));
  }
  BATON_RETURN_IF_ERROR(log_.status());
  Observe();
  if (channels_.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("NCCL has not said what it carries KV by, and --link-transport asks for {}", asked));
  }
  for (const auto& [transport, count] : channels_) {
    if (transfer::NcclLog::Allowed(asked, transport)) continue;
    return absl::FailedPreconditionError(
        fmt::format("NCCL carries KV by {}, and --link-transport asks for {}: see that GPUs reach each other "
                    "and that the network's libraries and devices are in the container (docs/gpus.md)",
                    transport, asked));
  }
  return absl::OkStatus();
}

void KvLink::Flush(absl::Duration max) {
  if (staged_sender_ != nullptr) staged_sender_->Flush(max);
  if (nccl_link_ != nullptr) nccl_link_->Flush(max);
  if (ucx_link_ != nullptr) ucx_link_->Flush(max);
}

void KvLink::Close() {
  if (staged_receiver_ != nullptr) staged_receiver_->Close();
  if (nccl_link_ != nullptr) nccl_link_->Close();
  if (ucx_link_ != nullptr) ucx_link_->Close();
}

}  // namespace baton::worker
