#include "common/worker/kv_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "spdlog/spdlog.h"

namespace baton::worker {
namespace {

// Staging memory of a worker, at most, unless eight blocks take more. A step whose KV finds no room gets
// fewer rows: 1 GiB, the share of a sender's only receiver, is 3,276 tokens of a 70B in bf16, enough for
// matrix products to be bound by arithmetic.
constexpr int64_t kMostStagingBytes = int64_t{2} << 30;

}  // namespace

int64_t KvLink::StagingBytes(int64_t step_tokens, const kv::KvLayout& layout) {
  const int64_t token_bytes = (layout.block_bytes() + kBlockTokens - 1) / kBlockTokens;
  const int64_t wanted = std::min(kMostStagingBytes, 4 * step_tokens * token_bytes);
  return std::max({transfer::NcclLinkOptions().staging_bytes, wanted, 8 * layout.block_bytes()});
}

KvLink::KvLink(const LinkOptions& options, device::Memory& memory, telemetry::Metrics& metrics)
    : host_sender_(memory), host_receiver_(memory), probe_(metrics, options.name) {}

absl::StatusOr<std::unique_ptr<transfer::Nccl>> KvLink::OpenNccl(const LinkOptions& options,
                                                                 engine::Engine& engine) {
  if (options.name == "host") return nullptr;
  if (options.name != "nccl") {
    return absl::InvalidArgumentError(fmt::format("--link {}: use host or nccl", options.name));
  }
  if (options.open_nccl == nullptr) {
    return absl::FailedPreconditionError("--link nccl: this process has no NCCL: use --link host");
  }
  return options.open_nccl(engine.memories());
}

absl::StatusOr<std::unique_ptr<transfer::NcclLog>> KvLink::OpenLog(const LinkOptions& options) {
  if (options.name != "nccl") return nullptr;
  return transfer::NcclLog::Open();
}

std::string KvLink::Pairing(transfer::Nccl* nccl) {
  return nccl == nullptr ? "host" : transfer::NcclLink::Pairing(nccl->version());
}

absl::StatusOr<std::unique_ptr<KvLink>> KvLink::Create(const LinkOptions& options,
                                                       std::unique_ptr<transfer::Nccl> opened,
                                                       absl::StatusOr<std::unique_ptr<transfer::NcclLog>> log,
                                                       engine::Engine& engine, engine::Loop& loop,
                                                       const Clock& clock, Incarnation self,
                                                       telemetry::Metrics& metrics) {
  auto link = std::unique_ptr<KvLink>(new KvLink(options, engine.store().memory(), metrics));
  if (opened == nullptr) return link;
  link->nccl_ = std::move(opened);
  link->log_ = std::move(log);
  if (link->log_.ok() && *link->log_ != nullptr) (*link->log_)->Restart();  // the ranks' own are apart
  transfer::NcclLinkOptions nccl;
  nccl.version = link->nccl_->version();
  nccl.pairs.max_open = options.max_pairs;
  nccl.pairs.max_receiving = 2 * options.max_pairs;
  nccl.most_receiving =
      static_cast<size_t>(std::max(1, options.receive_blocks / std::max(1, link->nccl_->channels())));
  nccl.pairs.transfer_timeout = absl::Seconds(options.timeout_seconds);
  // The first join of a process loads libraries and looks at the machine, beside others that do.
  nccl.pairs.join_timeout = std::max(nccl.pairs.join_timeout, 2 * nccl.pairs.transfer_timeout);
  nccl.staging_bytes = StagingBytes(options.step_tokens, engine.store().layout());
  BATON_ASSIGN_OR_RETURN(
      link->nccl_link_,
      transfer::NcclLink::Create(
          link->nccl_->Api(), link->nccl_->payload(), clock, self,
          [&loop](absl::AnyInvocable<void()> task) { return loop.PostAlways(std::move(task)); },
          [link = link.get()](const std::string& address, const transfer::Meeting& meeting,
                              transfer::LinkSender::Answer answer) {
            if (link->ask_ != nullptr) {
              link->ask_(address, meeting, std::move(answer));
            } else {
              answer(absl::FailedPreconditionError("this worker receives no KV"));
            }
          },
          nccl));
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
    return absl::FailedPreconditionError(
        fmt::format("--link-transport {} is a promise of --link nccl: this worker has --link host", asked));
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
  if (nccl_link_ != nullptr) nccl_link_->Flush(max);
}

void KvLink::Close() {
  if (nccl_link_ != nullptr) nccl_link_->Close();
}

}  // namespace baton::worker
