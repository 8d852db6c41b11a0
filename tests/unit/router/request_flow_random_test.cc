#include <gtest/gtest.h>

#include "common/base/random.h"
#include "tests/seed.h"
#include "tests/unit/router/request_flow_fixture.h"

namespace baton::router {
namespace {

// Any order of events that gRPC, the dispatcher and workers can produce: one Finish, one Write at a time, no
// booking left.
TEST_F(RequestFlowTest, KeepsItsPromisesUnderRandomEvents) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(seed);
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(UniformAt(seed, draws++) * below); };
  for (int round = 0; round < 500; ++round) {
    Make(clock_.Now() + absl::Milliseconds(50));
    const int choices = 1 + draw(3);
    struct Call {
      bool waiting = false, open = false, readable = false;
      int attempt = 0;
    };
    std::vector<Call> calls(choices);
    bool writing = false;
    int finishes = 0;
    const auto perform = [&](const Actions& actions) {
      for (const Action& action : actions) {
        ASSERT_EQ(finishes, 0) << "after Finish: " << Names(actions);
        if (std::holds_alternative<Submit>(action)) {
          for (Call& call : calls) call.waiting = true;
        } else if (const auto* again = std::get_if<Requeue>(&action)) {
          calls[again->choice].waiting = true;
        } else if (std::holds_alternative<Withdraw>(action)) {
          for (Call& call : calls) call.waiting = false;
        } else if (const auto* dial = std::get_if<Dial>(&action)) {
          ASSERT_FALSE(calls[dial->choice].open);
          calls[dial->choice] = {.waiting = false, .open = true, .readable = true, .attempt = dial->attempt};
        } else if (const auto* next = std::get_if<ReadNext>(&action)) {
          ASSERT_FALSE(calls[next->choice].readable) << "asked twice";
          calls[next->choice].readable = true;
        } else if (std::holds_alternative<Write>(action)) {
          ASSERT_FALSE(writing);
          writing = true;
        } else if (std::holds_alternative<Finish>(action) || std::holds_alternative<WriteLast>(action)) {
          ASSERT_FALSE(writing);
          ++finishes;
        }
      }
    };
    perform(flow_->OnPrepared(Request(choices)));
    for (int step = 0; step < 400 && finishes == 0; ++step) {
      const int choice = draw(choices);
      Call& call = calls[choice];
      switch (draw(7)) {
        case 0:
          if (call.waiting) {
            call.waiting = false;
            perform(draw(30) == 0 ? flow_->OnPlaced(choice, absl::UnavailableError("none"))
                                  : flow_->OnPlaced(choice, Place(draw(2))));
          }
          break;
        case 1:
        case 2:
        case 3:
          if (call.open && call.readable) {
            call.readable = false;
            const int kind = draw(12);
            perform(flow_->OnDecodeEvent(choice, call.attempt,
                                         kind < 5    ? Accepted()
                                         : kind < 11 ? Token("t")
                                                     : Done()));
          }
          break;
        case 4:
          if (call.open && draw(4) == 0) {
            call.open = false;
            call.readable = false;
            const absl::Status ends[] = {absl::OkStatus(), absl::UnavailableError(""),
                                         absl::ResourceExhaustedError("")};
            perform(flow_->OnDecodeEnd(choice, call.attempt, ends[draw(3)]));
          }
          break;
        case 5:
          if (writing) {
            writing = false;
            perform(flow_->OnWritten(draw(60) != 0));
          }
          break;
        default:
          clock_.Advance(absl::Milliseconds(1));
          if (draw(80) == 0) perform(flow_->OnCancelled());
      }
    }
    if (finishes == 0) perform(flow_->OnCancelled());
    if (writing) {
      writing = false;
      perform(flow_->OnWritten(false));
    }
    ASSERT_EQ(finishes, 1);
    ASSERT_EQ(Bookings(), 0);
  }
}

}  // namespace
}  // namespace baton::router
