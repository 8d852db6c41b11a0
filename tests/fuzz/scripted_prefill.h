// ScriptedPrefill: prefill workers that compute nothing: the events of each call are made from what the
// engine alone computes, delivered when the interpreter says so, and damaged if it likes. HeldReceiver: a
// link whose writes end when they are told to. For the decode scheduler's interpreter; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode_service/prefill_client.h"
#include "engine/kv/index/block_pool.h"
#include "engine/kv/store/kv_store.h"
#include "tests/fuzz/tiny_engine.h"
#include "transfer/host_link.h"

namespace baton::fuzz {

class ScriptedPrefill final : public decode_service::PrefillClient {
 public:
  // `draw` shapes each call: blocks per chunk, and when the logits come.
  explicit ScriptedPrefill(std::function<uint8_t()> draw) : draw_(std::move(draw)) {}

  std::unique_ptr<decode_service::PrefillCall> Call(const std::string& address,
                                                    fleet::v1::PrefillRequest request, absl::Time deadline,
                                                    const telemetry::TraceContext& trace,
                                                    Callbacks callbacks) override;

  // Calls that the decode worker still waits for.
  size_t live() const { return calls_.size(); }
  // The next event, or the end, of the call with this number among the live ones.
  void Deliver(size_t which);
  // A wrong one instead.
  void DeliverDamaged(size_t which, uint8_t how);
  void End(size_t which, absl::Status status);

 private:
  struct LiveCall {
    Callbacks callbacks;
    std::vector<fleet::v1::PrefillEvent> events;
    size_t next = 0;
    bool wanted = true;
  };
  class Handle;
  std::shared_ptr<LiveCall> At(size_t which);

  const std::function<uint8_t()> draw_;
  std::list<std::shared_ptr<LiveCall>> calls_;
  std::optional<fleet::v1::PrefillEvent> late_;  // of a call that has ended
};

class HeldReceiver final : public transfer::LinkReceiver {
 public:
  // Both outlive it.
  HeldReceiver(kv::KvStore& store, kv::BlockPool& pool) : store_(store), pool_(pool) {}

  std::string_view name() const override { return "held"; }
  void Receive(const fleet::v1::KvChunk& chunk, std::string_view, transfer::Pieces pieces,
               Done done) override;

  bool hold = false;
  size_t writing() const { return writes_.size(); }
  // Ends the oldest write. False: one of its blocks has been given back, or out again, meanwhile.
  bool EndOne();

 private:
  struct Write {
    const fleet::v1::KvChunk* chunk;
    transfer::Pieces pieces;
    Done done;
    std::vector<std::pair<BlockId, Generation>> blocks;
  };
  kv::KvStore& store_;
  kv::BlockPool& pool_;
  transfer::HostLinkReceiver host_;
  std::deque<Write> writes_;
};

}  // namespace baton::fuzz
