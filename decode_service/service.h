// DecodeService: baton.fleet.v1.Decode over gRPC. A reaction checks the request, posts it to the engine's
// loop and returns; everything else happens there, but for grammars: they are compiled on threads of their
// own before their requests are admitted (GrammarCompiler), and masks are computed on others
// (GrammarThreads). gRPC callback threads.
#pragma once

#include <atomic>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "baton/fleet/v1/decode.grpc.pb.h"
#include "common/rpc/security.h"
#include "common/rpc/served_calls.h"
#include "decode_service/grammar_compiler.h"
#include "decode_service/grammar_threads.h"
#include "decode_service/scheduler.h"
#include "engine/loop.h"
#include "text/config/config.h"
#include "text/grammar.h"
#include "text/tokenizer.h"
#include "worker/watch_hub.h"

namespace baton::decode_service {

class DecodeService final : public fleet::v1::Decode::CallbackService {
 public:
  // All outlive it.
  DecodeService(engine::Engine& engine, engine::Loop& loop, Scheduler& scheduler, worker::WatchHub& hub,
                std::shared_ptr<const text::Tokenizer> tokenizer, Probe& probe, const rpc::PeerCheck& peers,
                const Clock& clock, const telemetry::Tracer& tracer);

  grpc::ServerWriteReactor<fleet::v1::DecodeEvent>* Generate(
      grpc::CallbackServerContext* context, const fleet::v1::DecodeRequest* request) override;

 private:
  using Parsed = std::unique_ptr<Sequence>;
  // Engine thread: admits the sequence, or has its grammar compiled first.
  absl::Status Submit(SequenceId id, Parsed sequence);
  absl::Status Admit(SequenceId id, Parsed sequence);
  // Sets the caller's trace, and the request's spans if it is recorded.
  void Trace(const grpc::CallbackServerContext& context, const fleet::v1::DecodeRequest& request,
             Sequence& sequence) const;

  engine::Engine& engine_;
  engine::Loop& loop_;
  Scheduler& scheduler_;
  worker::WatchHub& hub_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::shared_ptr<const output::MarkerTables> markers_;
  Probe& probe_;
  const Clock& clock_;
  const telemetry::Tracer& tracer_;
  const rpc::ServedCalls<fleet::v1::DecodeEvent, engine::Loop> calls_;
  std::atomic<uint64_t> next_id_ = 1;
  const absl::StatusOr<std::shared_ptr<const text::GrammarVocabulary>> vocabulary_;
  absl::flat_hash_set<SequenceId> compiling_;  // engine thread
  GrammarThreads masks_;
  std::unique_ptr<GrammarCompiler> compiler_;  // null: there is no vocabulary
};

}  // namespace baton::decode_service
