// MeetingCalls: asks prefill workers for the ids of their links' meetings (Prefill/Meet). Engine thread, the
// destructor excepted: no answer comes after that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "baton/fleet/v1/prefill.grpc.pb.h"
#include "common/rpc/peer_calls.h"
#include "engine/loop.h"
#include "transfer/link.h"

namespace baton::decode_service {

class MeetingCalls {
 public:
  // Both outlive it.
  MeetingCalls(engine::Loop& loop, const rpc::PeerOptions& peers);

  // One answer, after Ask has returned: the id, or why there is none. UNAVAILABLE: no such worker answers.
  void Ask(const std::string& address, const std::string& meeting, transfer::LinkSender::Answer answer);

 private:
  struct Running {
    std::unique_ptr<rpc::EventCall> call;
    transfer::LinkSender::Answer answer;
    absl::StatusOr<std::string> id = absl::InternalError("the worker gave no id");
  };

  rpc::PeerCalls<fleet::v1::Prefill, fleet::v1::MeetRequest, fleet::v1::MeetResponse> calls_;
  uint64_t next_ = 0;
  std::map<uint64_t, Running> running_;
};

}  // namespace baton::decode_service
