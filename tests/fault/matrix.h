// One cell of the fault matrix: a request is brought to a state of its hand-off, one fault is applied, and
// what follows is judged: the parties of the broken call know within 2 s, no block is left on either side,
// the client gets one end, the tokens and the logits' bits are those of the engine alone, and the next
// request is served right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fault/rig.h"

namespace baton::fault {

enum class State {
  // decode side
  kReserved,
  kRequested,
  kReceiving,
  kCommitted,
  kRunning,
  kReleased,
  // prefill side
  kQueued,
  kComputing,
  kShipped,
  kPrefillReleased,
};
inline constexpr const char* kStates[] = {"d.Reserved", "d.Requested", "d.Receiving", "d.Committed",
                                          "d.Running",  "d.Released",  "p.Queued",    "p.Computing",
                                          "p.Shipped",  "p.Released"};

enum class Fault {
  kNone,
  kClientCancel,
  kClientCrash,
  kDeadline,
  kPrefillKill,
  kPrefillStop,
  kPrefillRestart,
  kDecodeKill,
  kDecodeStop,
  kRouterKill,
  kLinkDrop,
  kDelay,
  kDuplicate,
  kReorder,
  kCorrupt,
  kTruncate,
  kFullPool,
  kDiskFull,
};
inline constexpr const char* kFaults[] = {"none",      "cancel",    "cl.crash",  "deadline", "p.KILL",
                                          "p.STOP",    "p.restart", "d.KILL",    "d.STOP",   "r.KILL",
                                          "link-drop", "delay",     "duplicate", "reorder",  "corrupt",
                                          "truncate",  "full-pool", "log-full"};

inline constexpr int64_t kPromptTokens = 70;
inline constexpr int kChunks = 5 * 6;  // blocks x layers: one chunk message each
inline constexpr uint32_t kAnswer = 24;
inline const sampling::Params kSampling = {.temperature = 0.9f,
                                           .top_p = 0.95f,
                                           .seed = 11,
                                           .repetition_penalty = 1.1f,
                                           .presence_penalty = 0.3f,
                                           .frequency_penalty = 0.2f};
inline constexpr absl::Duration kBound = absl::Seconds(2);

struct Expected {
  std::vector<TokenId> prompt;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> digests;
};
// A prompt of kPromptTokens made of `seed`, and what the engine alone answers with kSampling. of_ranks:
// RigOptions::of_ranks.
const Expected& Alone(uint32_t seed, bool of_ranks = false);

// Returns the errors of an answer that should be `expected`, or, with may_end, a beginning of it. Empty:
// none.
std::string Judge(const Seen& seen, const Expected& expected, bool may_end);

struct Cell {
  std::string wrong;  // empty: green
  absl::Duration noticed, answered;
};
Cell TryCell(State state, Fault fault, const RigOptions& options = {});

}  // namespace baton::fault
