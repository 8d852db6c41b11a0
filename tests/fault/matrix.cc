#include "tests/fault/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace baton::fault {
namespace {

std::vector<TokenId> Prompt(uint32_t seed, int64_t size) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < size; ++i) tokens.emplace_back(static_cast<int32_t>(random() % 2000 + 20));
  return tokens;
}

// A disk without room for logs.
class FullDiskSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg&) override {
    throw spdlog::spdlog_ex("no space left on device");
  }
  void flush_() override {}
};

// Its logger stands in for the process's while the object lives.
class LogTo {
 public:
  explicit LogTo(spdlog::sink_ptr sink) : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("fault", std::move(sink));
    logger->set_error_handler([](const std::string&) {});
    spdlog::set_default_logger(std::move(logger));
  }
  ~LogTo() { spdlog::set_default_logger(before_); }

 private:
  std::shared_ptr<spdlog::logger> before_;
};

bool Reached(State state, Rig& rig, const Request& request) {
  const PrefillWire* wire = rig.handoff();
  prefill_service::Scheduler& prefill = *rig.prefill[0].scheduler;
  switch (state) {
    case State::kReserved:
      return wire != nullptr && !rig.request_reached_prefill();
    case State::kRequested:
      return rig.request_reached_prefill() && rig.chunks_taken() == 0;
    case State::kReceiving:
      return rig.chunks_taken() >= kChunks / 2;
    case State::kCommitted:
      return rig.chunks_taken() == kChunks;
    case State::kRunning:
      return request.seen.tokens.size() >= 4;
    case State::kReleased:
      return request.decode_finished;
    case State::kQueued:
      return prefill.queued() == 1;
    case State::kComputing:
      return prefill.computing() == 1 && prefill.pending_tokens() < kPromptTokens / 2;
    case State::kShipped:
      return wire != nullptr && wire->server_done() && wire->waiting() > 3;
    case State::kPrefillReleased:
      return wire != nullptr && wire->over();
  }
  return false;
}

bool EndsTheRequest(Fault fault) {
  return fault == Fault::kClientCancel || fault == Fault::kClientCrash || fault == Fault::kDeadline ||
         fault == Fault::kRouterKill;
}

void DamageChunk(Fault fault, fleet::v1::KvChunk& chunk) {
  std::string& data = *chunk.mutable_data();
  // The exponent's top bit in a value of the block's first token (the last block's later ones are not used).
  if (fault == Fault::kCorrupt) data[data.size() / 2 + 3] ^= 0x40;
  if (fault == Fault::kTruncate) data.resize(data.size() / 2);
}

void Apply(Fault fault, Rig& rig, Request& request, std::vector<std::shared_ptr<WireBase>>& broken,
           bool& replayed) {
  const auto all_wires = rig.wires();
  const auto touch = [&](const Node& node) {
    for (const auto& wire : all_wires) {
      if (wire->joins(node)) broken.push_back(wire);
    }
  };
  // The wire that is in use: the hand-off's while there is one, then the tokens'.
  std::shared_ptr<WireBase> in_use = request.wire;
  for (const auto& wire : all_wires) {
    if (wire.get() == rig.handoff()) in_use = wire;
  }
  switch (fault) {
    case Fault::kNone:
      break;
    case Fault::kClientCancel:
      broken = all_wires;
      rig.Cancel(request);
      break;
    case Fault::kClientCrash:
      broken = all_wires;
      rig.Vanish(request);
      break;
    case Fault::kDeadline:
      broken = all_wires;
      rig.PassDeadline(request);
      break;
    case Fault::kPrefillKill:
      touch(rig.prefill[0]);
      rig.Kill(rig.prefill[0]);
      break;
    case Fault::kPrefillStop:
      touch(rig.prefill[0]);
      rig.Stop(rig.prefill[0]);
      break;
    case Fault::kPrefillRestart:
      touch(rig.prefill[0]);
      rig.Restart(rig.prefill[0]);
      break;
    case Fault::kDecodeKill:
      touch(*request.decode);
      rig.Kill(*request.decode);
      break;
    case Fault::kDecodeStop:
      touch(*request.decode);
      rig.Stop(*request.decode);
      break;
    case Fault::kRouterKill:
      broken = all_wires;
      rig.KillRouter(request);
      break;
    case Fault::kLinkDrop:
      broken.push_back(in_use);
      in_use->Cut();
      break;
    case Fault::kDelay:
      in_use->HoldUntil(rig.now() + absl::Milliseconds(500));
      break;
    case Fault::kDuplicate:
    case Fault::kReorder:
    case Fault::kCorrupt:
    case Fault::kTruncate:
      if (rig.chunks_taken() >= kChunks) {
        // Nothing is left to damage: the chunks of this hand-off turn up in the next one.
        std::vector<fleet::v1::KvChunk> late = rig.chunks();
        for (fleet::v1::KvChunk& chunk : late) DamageChunk(fault, chunk);
        if (fault == Fault::kReorder) std::reverse(late.begin(), late.end());
        rig.ReplayLate(std::move(late));
        replayed = true;
        break;
      }
      rig.handoff()->SetDamage([fault](std::deque<fleet::v1::PrefillEvent>& waiting) {
        if (!waiting.front().has_chunk()) return false;
        if (fault == Fault::kDuplicate) {
          waiting.push_front(waiting.front());
        } else if (fault == Fault::kReorder) {
          if (waiting.size() < 2) return false;
          std::swap(waiting[0], waiting[1]);
        } else {
          DamageChunk(fault, *waiting.front().mutable_chunk());
        }
        return true;
      });
      break;
    case Fault::kFullPool:
      rig.FillPools(request, absl::Seconds(1));
      break;
    case Fault::kDiskFull:
      spdlog::set_level(spdlog::level::info);
      break;
  }
}

}  // namespace

const Expected& Alone(uint32_t seed, bool of_ranks) {
  static std::map<std::pair<uint32_t, bool>, Expected> all;
  Expected& expected = all[{seed, of_ranks}];
  if (expected.prompt.empty()) {
    expected.prompt = Prompt(seed, kPromptTokens);
    const engine::SoloRun run =
        engine::GenerateSolo(Rig::SoloEngine(of_ranks), expected.prompt, kSampling, kAnswer, {}, 0).value();
    for (TokenId token : run.tokens) expected.tokens.push_back(token.value());
    expected.digests = run.logits_digests;
  }
  return expected;
}

std::string Judge(const Seen& seen, const Expected& expected, bool may_end) {
  if (!seen.status.has_value()) return "the client waits for ever; ";
  std::string wrong;
  if (seen.ends != 1) wrong += fmt::format("{} ends; ", seen.ends);
  if (seen.started > 1) wrong += "Started twice; ";
  const size_t count = seen.tokens.size();
  const bool prefix = count <= expected.tokens.size() &&
                      std::equal(seen.tokens.begin(), seen.tokens.end(), expected.tokens.begin()) &&
                      seen.digests.size() == count &&
                      std::equal(seen.digests.begin(), seen.digests.end(), expected.digests.begin());
  if (!prefix) wrong += "WRONG TOKENS; ";
  if (seen.status->ok()) {
    if (count != expected.tokens.size()) wrong += fmt::format("OK after {} tokens; ", count);
    if (!seen.finished.has_value()) {
      wrong += "OK without Finished; ";
    } else if (seen.finished->usage().completion_tokens() != kAnswer ||
               seen.finished->usage().prompt_tokens() != kPromptTokens) {
      wrong += "usage is wrong; ";
    }
  } else if (!may_end) {
    wrong += seen.status->ToString() + "; ";
  } else if (!absl::IsCancelled(*seen.status) && !absl::IsDeadlineExceeded(*seen.status) &&
             !absl::IsUnavailable(*seen.status)) {
    wrong += "not canonical: " + seen.status->ToString() + "; ";
  }
  return wrong;
}

Cell TryCell(State state, Fault fault, const RigOptions& options) {
  Cell cell;
  const Expected& expected = Alone(1, options.of_ranks());
  absl::Time deadline = absl::InfiniteFuture();
  if (fault == Fault::kDeadline) {
    // Time is virtual, so a rehearsal tells when the state is reached.
    Rig rehearsal(options);
    Request& request = rehearsal.Ask(expected.prompt, kSampling, kAnswer);
    if (state == State::kQueued) rehearsal.HogPrefill(absl::Milliseconds(300));
    while (!Reached(state, rehearsal, request)) rehearsal.Turn();
    deadline = rehearsal.now();
  }
  const LogTo full_disk(std::make_shared<FullDiskSink>());
  spdlog::set_level(spdlog::level::off);
  Rig rig(options);
  Request& request = rig.Ask(expected.prompt, kSampling, kAnswer, deadline);
  if (state == State::kQueued) rig.HogPrefill(absl::Milliseconds(300));
  for (int turn = 0; !Reached(state, rig, request); ++turn) {
    rig.Turn();
    if (turn > 5000) {
      cell.wrong = "the state was never reached; ";
      return cell;
    }
  }
  const absl::Time begin = rig.now();
  std::vector<std::shared_ptr<WireBase>> broken;
  bool replayed = false;
  Apply(fault, rig, request, broken, replayed);
  // The parties of the broken calls know, and have let go.
  const auto noticed = [&] {
    const bool settled =
        std::all_of(broken.begin(), broken.end(), [](const auto& wire) { return wire->settled(); });
    if (!EndsTheRequest(fault)) return settled;
    return settled && request.seen.status.has_value() && rig.Leftovers().empty();
  };
  while (!noticed() && rig.now() - begin < kBound) rig.Turn();
  cell.noticed = rig.now() - begin;
  if (!noticed()) {
    cell.wrong += fmt::format("not over after 2 s: {}", rig.Leftovers().empty() ? "a call" : rig.Leftovers());
  }
  while (!request.seen.status.has_value() && rig.now() - begin < absl::Seconds(20)) rig.Turn();
  cell.answered = request.seen.ended - begin;
  cell.wrong += Judge(request.seen, expected, EndsTheRequest(fault));

  // Whatever happened, the next request is served, and served right.
  const Expected& next = Alone(2, options.of_ranks());
  Request& follower = rig.Ask(next.prompt, kSampling, kAnswer);
  const absl::Time asked = rig.now();
  while (!follower.seen.status.has_value() && rig.now() - asked < absl::Seconds(20)) rig.Turn();
  if (const std::string wrong = Judge(follower.seen, next, false); !wrong.empty()) {
    cell.wrong += "next request: " + wrong;
  } else if (replayed && follower.seen.finished->relay().failovers() == 0) {
    cell.wrong += "late chunks were taken; ";
  }
  // Hung processes go on, and find that the world has moved.
  rig.Continue(rig.prefill[0]);
  for (DecodeNode& node : rig.decode) rig.Continue(node);
  rig.Settle(absl::Seconds(5));
  if (const std::string left = rig.Leftovers(); !left.empty()) cell.wrong += "LEAK: " + left;
  return cell;
}

}  // namespace baton::fault
