#include "decode_service/meeting_calls.h"

#include <utility>

namespace baton::decode_service {
namespace {

// The peer makes the id in a moment, or has a NCCL that hangs.
constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

MeetingCalls::MeetingCalls(engine::Loop& loop, const rpc::PeerOptions& peers)
    : calls_(&fleet::v1::Prefill::StubInterface::async_interface::Meet, peers,
             [&loop](engine::Loop::Task task) { loop.PostAlways(std::move(task)); }) {}

void MeetingCalls::Ask(const std::string& address, const std::string& meeting,
                       transfer::LinkSender::Answer answer) {
  const uint64_t number = next_++;
  Running& running = running_[number];
  running.answer = std::move(answer);
  fleet::v1::MeetRequest request;
  request.set_meeting(meeting);
  running.call = calls_.Call(address, std::move(request), absl::Now() + kPatience,
                             {.event =
                                  [this, number](fleet::v1::MeetResponse response) {
                                    Running& own = running_.at(number);
                                    own.id = std::move(*response.mutable_id());
                                    own.call->Next();
                                  },
                              .done =
                                  [this, number](const absl::Status& status) {
                                    auto own = running_.extract(number);
                                    if (!status.ok()) own.mapped().id = status;
                                    own.mapped().answer(std::move(own.mapped().id));
                                  }});
}

}  // namespace baton::decode_service
