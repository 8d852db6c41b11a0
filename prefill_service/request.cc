#include "prefill_service/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "protocol/client/token_ids.h"
#include "protocol/fleet/fingerprint_wire.h"
#include "protocol/fleet/lease_wire.h"
#include "protocol/fleet/prompt_checksum.h"
#include "protocol/fleet/reusable_wire.h"

namespace baton::prefill_service {

absl::Status CheckPair(const fleet::v1::Fingerprint& theirs, const engine::Engine& engine,
                       std::string_view link) {
  if (const auto difference = protocol::FirstDifference(engine.fingerprint(), protocol::FromProto(theirs));
      difference.has_value()) {
    return absl::FailedPreconditionError(
        fmt::format("fingerprints differ, prefill worker against decode worker: {}", *difference));
  }
  const std::string_view other = theirs.link().empty() ? "host" : std::string_view(theirs.link());
  if (other == link) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("links differ, prefill worker against decode worker: {} here, {} there; start both with "
                  "the same --link, and over nccl or ucx with the same release of NCCL or UCX",
                  link, other));
}

absl::StatusOr<Job> ParseRequest(const fleet::v1::PrefillRequest& request, const engine::Engine& engine,
                                 std::string_view link) {
  const model::ModelConfig& config = engine.config();
  BATON_RETURN_IF_ERROR(CheckPair(request.fingerprint(), engine, link));
  if (const uint32_t crc = protocol::PromptChecksum(request); crc != request.prompt_crc32c()) {
    return absl::DataLossError(fmt::format(
        "prompt_crc32c: the prompt that arrived has checksum {:08x}, the one that was sent {:08x}", crc,
        request.prompt_crc32c()));
  }
  const int64_t size = request.token_ids_size();
  if (size == 0) return absl::InvalidArgumentError("token_ids: the prompt is empty");
  if (size > config.context) {
    return absl::InvalidArgumentError(
        fmt::format("token_ids: {} tokens exceed the context of {}", size, config.context));
  }
  Job job;
  BATON_RETURN_IF_ERROR(protocol::CheckTokenIds(request.token_ids(), config.vocabulary, "token_ids"));
  job.tokens = protocol::TokensOf(request.token_ids());
  job.ticket = protocol::Ticket::FromProto(request.ticket());
  if (job.ticket.blocks() == 0 || job.ticket.first_block + job.ticket.blocks() > BlocksFor(size)) {
    return absl::InvalidArgumentError(
        fmt::format("ticket: covers blocks [{}, {}) of a prompt that has {}", job.ticket.first_block,
                    job.ticket.first_block + job.ticket.blocks(), BlocksFor(size)));
  }
  job.request_id = request.request_id();
  job.root = engine.RootFor(kv::TenantSalt(request.salt()));
  job.priority = request.priority();
  BATON_ASSIGN_OR_RETURN(job.leases, protocol::LeasesFromProto(request.leases(), size));
  BATON_ASSIGN_OR_RETURN(job.reusable, protocol::ReusableFromProto(request.reusable(), size));
  job.peer = request.fetch();
  // The last token is computed here in any case.
  job.peer.set_blocks(
      std::min<uint32_t>(job.peer.blocks(), static_cast<uint32_t>((size - 1) / kBlockTokens)));
  return job;
}

}  // namespace baton::prefill_service
