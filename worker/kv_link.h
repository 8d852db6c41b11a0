// KvLink: what carries this worker's KV, as --link says: the host link, the nccl link with NCCL behind it, or
// the ucx link with UCX.
// Both workers of a hand-off use the same one: the fingerprint names it, and workers with unlike links don't
// pair. A link that can't be opened is an error at start; no other link takes its place. Owned by the
// WorkerRuntime.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "engine/engine.h"
#include "engine/loop.h"
#include "transfer/host_link.h"
#include "transfer/nccl/nccl_link.h"
#include "transfer/nccl/nccl_log.h"
#include "transfer/nccl/open_nccl.h"
#include "transfer/staged_host_link.h"
#include "transfer/ucx/open_ucx.h"
#include "transfer/ucx/ucx_link.h"
#include "worker/link_probe.h"

namespace baton::worker {

struct LinkOptions {
  std::string name = "host";
  // A transfer without progress for so long ends its pair (nccl) or connection (ucx).
  double timeout_seconds = 5;
  // Communicators that a sender keeps open (nccl). A receiver keeps twice as many.
  size_t max_pairs = 32;
  // Thread blocks of the GPU that receives may occupy at once (nccl).
  int receive_blocks = 16;
  // Tokens whose KV may leave in one step: what staging memory is made for. A prefill worker's.
  int64_t step_tokens = 0;
  // Filled in by main.
  transfer::NcclOpener open_nccl;
  // NCCL may use RDMA devices where there are some. Filled in by main (PrepareGpus).
  bool rdma = true;
  transfer::UcxOpener open_ucx;
};

class KvLink {
 public:
  // Libraries that the link needs: none with the host link.
  struct Libraries {
    std::unique_ptr<transfer::Nccl> nccl;
    absl::StatusOr<std::unique_ptr<transfer::NcclLog>> nccl_log = nullptr;
    std::optional<transfer::Ucx> ucx;
    // The link's name in the fingerprint.
    std::string pairing = "host";
  };
  // FAILED_PRECONDITION: no such link in this build or on this machine.
  static absl::StatusOr<Libraries> Open(const LinkOptions& options, engine::Engine& engine);
  // The log of NCCL, if the link needs it; null with other links. Before the engine is loaded, whose ranks
  // may use NCCL. An error says why its words are not to be had; links work without.
  static absl::StatusOr<std::unique_ptr<transfer::NcclLog>> OpenLog(const LinkOptions& options);
  // Staging memory of a worker whose steps ship the KV of so many tokens: of four steps, because a lone
  // receiver's share is half of it and as much may still be on its way; at least 256 MiB, and at most 2 GiB
  // unless eight blocks take more.
  static int64_t StagingBytes(int64_t step_tokens, const kv::KvLayout& layout);
  // All outlive it. RESOURCE_EXHAUSTED: no memory for staging.
  static absl::StatusOr<std::unique_ptr<KvLink>> Create(const LinkOptions& options, Libraries libraries,
                                                        engine::Engine& engine, engine::Loop& loop,
                                                        const Clock& clock, Incarnation self,
                                                        telemetry::Metrics& metrics);

  transfer::LinkSender& sender();
  transfer::LinkReceiver& receiver();
  // The host link, by which peers exchange cached blocks whatever hand-offs go by.
  transfer::LinkSender& host_sender() { return *host_sender_; }
  transfer::LinkReceiver& host_receiver() { return *host_receiver_; }
  LinkProbe& probe() { return probe_; }
  // How a worker that receives asks another one for the id of a meeting. Before the engine thread starts.
  void SetAsk(transfer::NcclLink::Ask ask) { ask_ = std::move(ask); }
  // Why this process should be replaced; empty if it need not. Any thread; the engine's loop is woken.
  std::string fault() const { return nccl_link_ == nullptr ? "" : nccl_link_->fault(); }

  // Engine thread, after a step.
  void Observe();
  // OK if NCCL carries KV by the transport asked for: transfer::NcclLog::Allowed. After a transfer, which
  // makes NCCL choose. FAILED_PRECONDITION: it does not, or it can't be known. Engine thread.
  absl::Status CheckTransport(std::string_view asked);
  // Waits until what was shipped has left, for at most `max`. Any thread but the engine's.
  void Flush(absl::Duration max);
  // Tells all who wait. The engine thread has ended.
  void Close();

 private:
  KvLink(const LinkOptions& options, telemetry::Metrics& metrics) : probe_(metrics, options.name) {}
  absl::Status MakeNcclLink(const LinkOptions& options, Libraries libraries, engine::Engine& engine,
                            engine::Loop& loop, const Clock& clock, Incarnation self);
  absl::Status MakeUcxLink(const LinkOptions& options, transfer::Ucx ucx, engine::Engine& engine,
                           engine::Loop& loop, const Clock& clock, Incarnation self);

  absl::Status OpenHostLink(const LinkOptions& options, engine::Engine& engine, engine::Loop& loop);

  // The plain host link, or, where KV lies on a device, the staged one.
  std::unique_ptr<transfer::LinkSender> host_sender_;
  std::unique_ptr<transfer::LinkReceiver> host_receiver_;
  transfer::StagedHostLinkSender* staged_sender_ = nullptr;
  transfer::StagedHostLinkReceiver* staged_receiver_ = nullptr;
  LinkProbe probe_;
  transfer::NcclLink::Ask ask_;
  // At most one of the two links, with what it works on.
  std::unique_ptr<transfer::Nccl> nccl_;
  absl::StatusOr<std::unique_ptr<transfer::NcclLog>> log_ = nullptr;  // null but with the nccl link
  std::map<std::string, int64_t> channels_;                           // that the probe knows of
  std::unique_ptr<transfer::NcclLink> nccl_link_;
  std::unique_ptr<transfer::Payload> ucx_payload_;
  std::unique_ptr<transfer::UcxLink> ucx_link_;
};

}  // namespace baton::worker
