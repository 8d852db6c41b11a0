// The fault matrix of peer fetch: every state of a fetch x every fault, for a prefill worker and for a decode
// worker that fetch from a prefill worker, in virtual time. A fetch may fail in any way: the answer is the
// undisturbed one, survivors let go within 2 s, and no block is left on any side.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "spdlog/spdlog.h"
#include "tests/fault/matrix.h"
#include "tests/fault/table.h"

namespace baton::fault {
namespace {

// As the one that fetches knows it.
enum class FetchState { kAsked, kFound, kReceiving, kLanded };
constexpr const char* kFetchStates[] = {"f.Asked", "f.Found", "f.Receiving", "f.Landed"};

enum class FetchFault {
  kNone,
  kClientCancel,
  kClientCrash,
  kDeadline,
  kHolderKill,
  kHolderStop,
  kHolderRestart,
  kHolderWantsRoom,
  kFetcherKill,
  kFetcherStop,
  kFetcherRestart,
  kRouterKill,
  kLinkDrop,
  kDelay,
  kDuplicate,
  kReorder,
  kCorrupt,
  kTruncate,
  kStale,
};
constexpr const char* kFetchFaults[] = {"none",      "cancel",    "cl.crash",  "deadline", "h.KILL",
                                        "h.STOP",    "h.restart", "h.room",    "f.KILL",   "f.STOP",
                                        "f.restart", "r.KILL",    "link-drop", "delay",    "duplicate",
                                        "reorder",   "corrupt",   "truncate",  "stale"};

bool FetchReached(FetchState state, Rig& rig) {
  switch (state) {
    case FetchState::kAsked:
      return rig.fetch() != nullptr;
    case FetchState::kFound:
      return rig.fetch_events() == 1;
    case FetchState::kReceiving:
      return rig.fetch_events() == 3;
    case FetchState::kLanded:
      return rig.fetch() != nullptr && rig.fetch()->over();
  }
  return false;
}

bool FetchFaultEnds(FetchFault fault) {
  return fault == FetchFault::kClientCancel || fault == FetchFault::kClientCrash ||
         fault == FetchFault::kDeadline || fault == FetchFault::kRouterKill;
}

void Damage(FetchFault fault, FetchWire& wire) {
  wire.SetDamage([fault](std::deque<fleet::v1::FetchEvent>& waiting) {
    if (!waiting.front().has_chunk()) return false;
    fleet::v1::KvChunk& chunk = *waiting.front().mutable_chunk();
    std::string& data = *chunk.mutable_data();
    switch (fault) {
      case FetchFault::kDuplicate:
        waiting.push_front(waiting.front());
        break;
      case FetchFault::kReorder:
        if (waiting.size() < 2) return false;
        std::swap(waiting[0], waiting[1]);
        break;
      case FetchFault::kCorrupt:
        data[data.size() / 2 + 3] ^= 0x40;
        break;
      case FetchFault::kTruncate:
        data.resize(data.size() / 2);
        break;
      default:
        chunk.set_generations(0, chunk.generations(0) - 1);
    }
    return true;
  });
}

void ApplyToFetch(FetchFault fault, Rig& rig, Request& request, Fetches fetches,
                  std::vector<std::shared_ptr<WireBase>>& broken) {
  const auto all_wires = rig.wires();
  const auto touch = [&](const Node& node) {
    for (const auto& wire : all_wires) {
      if (wire->joins(node)) broken.push_back(wire);
    }
  };
  PrefillNode& holder = rig.prefill[1];
  const bool prefill = fetches == Fetches::kPrefill;
  switch (fault) {
    case FetchFault::kNone:
      break;
    case FetchFault::kClientCancel:
      broken = all_wires;
      rig.Cancel(request);
      break;
    case FetchFault::kClientCrash:
      broken = all_wires;
      rig.Vanish(request);
      break;
    case FetchFault::kDeadline:
      broken = all_wires;
      rig.PassDeadline(request);
      break;
    case FetchFault::kHolderKill:
      touch(holder);
      rig.Kill(holder);
      break;
    case FetchFault::kHolderStop:
      touch(holder);
      rig.Stop(holder);
      break;
    case FetchFault::kHolderRestart:
      touch(holder);
      rig.Restart(holder);
      break;
    case FetchFault::kHolderWantsRoom:
      holder.server->MakeRoom();
      break;
    case FetchFault::kFetcherKill:
      touch(prefill ? static_cast<Node&>(rig.prefill[0]) : *request.decode);
      prefill ? rig.Kill(rig.prefill[0]) : rig.Kill(*request.decode);
      break;
    case FetchFault::kFetcherStop:
      touch(prefill ? static_cast<Node&>(rig.prefill[0]) : *request.decode);
      rig.Stop(prefill ? static_cast<Node&>(rig.prefill[0]) : *request.decode);
      break;
    case FetchFault::kFetcherRestart:
      touch(prefill ? static_cast<Node&>(rig.prefill[0]) : *request.decode);
      prefill ? rig.Restart(rig.prefill[0]) : rig.Restart(*request.decode);
      break;
    case FetchFault::kRouterKill:
      broken = all_wires;
      rig.KillRouter(request);
      break;
    case FetchFault::kLinkDrop:
      for (const auto& wire : all_wires) {
        if (wire.get() == rig.fetch()) broken.push_back(wire);
      }
      rig.fetch()->Cut();
      break;
    case FetchFault::kDelay:
      rig.fetch()->HoldUntil(rig.now() + absl::Milliseconds(500));
      break;
    case FetchFault::kDuplicate:
    case FetchFault::kReorder:
    case FetchFault::kCorrupt:
    case FetchFault::kTruncate:
    case FetchFault::kStale:
      Damage(fault, *rig.fetch());
      break;
  }
}

struct FetchCell : Cell {
  uint32_t fetched = 0;
};

FetchCell Try(FetchState state, FetchFault fault, const RigOptions& options) {
  FetchCell cell;
  const Expected& expected = Alone(1);
  spdlog::set_level(spdlog::level::off);
  Rig rig(options);
  Rig::Warm(rig.prefill[1], expected.prompt);
  Request& request = rig.Ask(expected.prompt, kSampling, kAnswer);
  for (int turn = 0; !FetchReached(state, rig); ++turn) {
    rig.Turn();
    if (turn > 1000) {
      cell.wrong = "the state was never reached; ";
      return cell;
    }
  }
  const absl::Time begin = rig.now();
  std::vector<std::shared_ptr<WireBase>> broken;
  ApplyToFetch(fault, rig, request, options.fetches, broken);
  const auto noticed = [&] {
    const bool settled =
        std::all_of(broken.begin(), broken.end(), [](const auto& wire) { return wire->settled(); });
    if (!FetchFaultEnds(fault)) return settled;
    return settled && request.seen.status.has_value() && rig.Leftovers().empty();
  };
  while (!noticed() && rig.now() - begin < kBound) rig.Turn();
  cell.noticed = rig.now() - begin;
  if (!noticed()) {
    cell.wrong += fmt::format("not over after 2 s: {}", rig.Leftovers().empty() ? "a call" : rig.Leftovers());
  }
  while (!request.seen.status.has_value() && rig.now() - begin < absl::Seconds(20)) rig.Turn();
  cell.answered = request.seen.ended - begin;
  cell.wrong += Judge(request.seen, expected, FetchFaultEnds(fault));
  if (request.seen.finished.has_value()) cell.fetched = request.seen.finished->relay().fetched_tokens();

  const Expected& next = Alone(2);
  Request& follower = rig.Ask(next.prompt, kSampling, kAnswer);
  const absl::Time asked = rig.now();
  while (!follower.seen.status.has_value() && rig.now() - asked < absl::Seconds(20)) rig.Turn();
  if (const std::string wrong = Judge(follower.seen, next, false); !wrong.empty()) {
    cell.wrong += "next request: " + wrong;
  }
  for (PrefillNode& node : rig.prefill) rig.Continue(node);
  for (DecodeNode& node : rig.decode) rig.Continue(node);
  rig.Settle(absl::Seconds(40));  // patience with the last fetch included
  if (const std::string left = rig.Leftovers(); !left.empty()) cell.wrong += "LEAK: " + left;
  return cell;
}

void RunFetchMatrix(const RigOptions& options, Share share) {
  TryAll(kFetchStates, kFetchFaults, share, [&](int state, int fault) {
    const FetchCell cell = Try(static_cast<FetchState>(state), static_cast<FetchFault>(fault), options);
    if (static_cast<FetchFault>(fault) == FetchFault::kNone) {
      EXPECT_EQ(cell.fetched, 64u) << "the table would prove little if nothing were fetched";
    }
    return cell;
  });
}

TEST(FetchFaultMatrixTest, APrefillWorkersFetchSurvivesEveryFault) {
  RunFetchMatrix({.fetches = Fetches::kPrefill}, {0, 6});
}

TEST(FetchFaultMatrixTest, ADecodeWorkersFetchSurvivesEveryFault) {
  RunFetchMatrix({.fetches = Fetches::kDecode}, {2, 6});
}

TEST(FetchFaultMatrixTest, ADecodeWorkersFetchSurvivesEveryFaultOverALinkWhoseWritesEndLate) {
  RunFetchMatrix({.write_takes = absl::Milliseconds(5), .fetches = Fetches::kDecode}, {4, 6});
}

// Negative control: without the checksum a damaged block becomes tokens, and what is fetched is told to
// others.
TEST(FetchFaultMatrixTest, WithoutTheChecksumDamageBecomesTokens) {
  const RigOptions options = {.without = {.checksum = true}, .fetches = Fetches::kDecode};
  EXPECT_EQ(Try(FetchState::kFound, FetchFault::kNone, options).wrong, "");
  EXPECT_NE(Try(FetchState::kFound, FetchFault::kTruncate, options).wrong.find("WRONG TOKENS"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::fault
