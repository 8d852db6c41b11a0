#include "common/worker/kv_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace baton::worker {
namespace {

// A step's chunks must find room while as much is still on its way, in buffers somewhat larger than they are.
int64_t StagingFor(const LinkOptions& options, const kv::KvLayout& layout) {
  const int64_t token_bytes = (layout.block_bytes() + kBlockTokens - 1) / kBlockTokens;
  return std::max(transfer::NcclLinkOptions().staging_bytes, 4 * options.step_tokens * token_bytes);
}

}  // namespace

KvLink::KvLink(const LinkOptions& options, device::Memory& memory, telemetry::Metrics& metrics)
    : host_sender_(memory), host_receiver_(memory), probe_(metrics, options.name) {}

absl::StatusOr<std::unique_ptr<KvLink>> KvLink::Create(const LinkOptions& options, engine::Engine& engine,
                                                       engine::Loop& loop, const Clock& clock,
                                                       Incarnation self, telemetry::Metrics& metrics) {
  auto link = std::unique_ptr<KvLink>(new KvLink(options, engine.store().memory(), metrics));
  if (options.name == "host") return link;
  if (options.name != "nccl") {
    return absl::InvalidArgumentError(fmt::format("--link {}: use host or nccl", options.name));
  }
  if (options.open_nccl == nullptr) {
    return absl::FailedPreconditionError("--link nccl: this process has no NCCL: use --link host");
  }
  BATON_ASSIGN_OR_RETURN(link->nccl_, options.open_nccl(engine.memories()));
  transfer::NcclLinkOptions nccl;
  nccl.pairs.max_open = options.max_pairs;
  nccl.pairs.transfer_timeout = absl::Seconds(options.timeout_seconds);
  nccl.pairs.join_timeout = 2 * nccl.pairs.transfer_timeout;
  nccl.staging_bytes = StagingFor(options, engine.store().layout());
  link->nccl_link_ = std::make_unique<transfer::NcclLink>(
      link->nccl_->Api(), link->nccl_->payload(), clock, self,
      [&loop](absl::AnyInvocable<void()> task) { return loop.PostAlways(std::move(task)); }, nccl);
  return link;
}

transfer::LinkSender& KvLink::sender() {
  if (nccl_link_ != nullptr) return *nccl_link_;
  return host_sender_;
}

transfer::LinkReceiver& KvLink::receiver() {
  if (nccl_link_ != nullptr) return *nccl_link_;
  return host_receiver_;
}

void KvLink::Observe() {
  if (nccl_link_ != nullptr) probe_.Counted(nccl_link_->counts());
}

void KvLink::Flush(absl::Duration max) {
  if (nccl_link_ != nullptr) nccl_link_->Flush(max);
}

void KvLink::Close() {
  if (nccl_link_ != nullptr) nccl_link_->Close();
}

}  // namespace baton::worker
