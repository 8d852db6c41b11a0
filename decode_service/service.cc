#include "decode_service/service.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/trace_metadata.h"
#include "common/telemetry/semantic_conventions.h"
#include "decode_service/request.h"
#include "engine/device/thread_pool.h"

namespace baton::decode_service {
namespace {

// A client that lets this much pile up is paused until it has read on.
constexpr size_t kMaxOutboxBytes = 256 << 10;

// A mask takes some 10 us: a second thread pays where batches are large. Those of dear masks take an eighth
// of the cores at most, or one.
int SwiftThreads() { return device::UsableCores() >= 8 ? 2 : 1; }
int SlowThreads() { return std::max(1, device::UsableCores() / 8); }

}  // namespace

DecodeService::DecodeService(engine::Engine& engine, engine::Loop& loop, Scheduler& scheduler,
                             worker::WatchHub& hub, std::shared_ptr<const text::Tokenizer> tokenizer,
                             Probe& probe, const rpc::PeerCheck& peers, const Clock& clock,
                             const telemetry::Tracer& tracer)
    : engine_(engine),
      loop_(loop),
      scheduler_(scheduler),
      hub_(hub),
      tokenizer_(std::move(tokenizer)),
      markers_(std::make_shared<output::MarkerTables>(*tokenizer_)),
      probe_(probe),
      clock_(clock),
      tracer_(tracer),
      calls_(peers, loop, kMaxOutboxBytes),
      vocabulary_(text::GrammarVocabulary::Make(*tokenizer_)),
      // The engine's thread draws what waits before its next step.
      masks_({.swift = SwiftThreads(), .slow = SlowThreads(), .ready = [&loop] {
                (void)loop.PostAlways([] {});
              }}) {
  if (vocabulary_.ok()) {
    compiler_ = std::make_unique<GrammarCompiler>(*vocabulary_, GrammarCompiler::Options{});
  }
}

absl::Status DecodeService::Submit(SequenceId id, Parsed sequence) {
  if (sequence->grammar == nullptr || sequence->pending_end.has_value())
    return Admit(id, std::move(sequence));
  if (!vocabulary_.ok()) return vocabulary_.status();
  compiling_.insert(id);
  const std::string salt = sequence->salt;
  std::string lark = sequence->grammar->lark();
  GrammarCompiler::Done compiled = [this, id, sequence = std::move(sequence)](
                                       absl::StatusOr<text::GrammarMatcher> matcher) mutable {
    const auto finish = sequence->finish;
    const bool there =
        loop_.PostAlways([this, id, sequence = std::move(sequence), matcher = std::move(matcher)]() mutable {
          if (compiling_.erase(id) == 0) return;  // the caller went away
          const auto tell = sequence->finish;
          absl::Status admitted = matcher.status();
          if (!hub_.takes_work())
            admitted = absl::UnavailableError("this decode worker is leaving: use another");
          if (admitted.ok()) {
            sequence->grammar->Begin(*vocabulary_, *std::move(matcher), masks_);
            admitted = Admit(id, std::move(sequence));
          }
          if (!admitted.ok()) tell(admitted);
        });
    if (!there) finish(absl::UnavailableError("this decode worker is leaving: use another"));
  };
  const bool posted = compiler_->Compile(salt, std::move(lark), std::move(compiled));
  if (posted) return absl::OkStatus();
  compiling_.erase(id);
  probe_.Refused();
  return absl::ResourceExhaustedError(
      "too many grammars wait to be compiled on this decode worker: use another");
}

absl::Status DecodeService::Admit(SequenceId id, Parsed sequence) {
  absl::Status admitted = scheduler_.Submit(id, std::move(sequence));
  if (!admitted.ok()) probe_.Refused();
  return admitted;
}

void DecodeService::Trace(const grpc::CallbackServerContext& context, const fleet::v1::DecodeRequest& request,
                          Sequence& sequence) const {
  sequence.trace = rpc::TraceOf(context);
  sequence.spans =
      tracer_.Begin(sequence.trace, clock_, "decode.request", telemetry::Span::Kind::kServer, clock_.Now());
  if (sequence.spans == nullptr) return;
  sequence.trace = sequence.spans->context();
  sequence.spans->whole().attributes = {{telemetry::names::kRequestId, request.request_id()},
                                        {telemetry::names::kChoice, int64_t{request.choice()}}};
}

grpc::ServerWriteReactor<fleet::v1::DecodeEvent>* DecodeService::Generate(
    grpc::CallbackServerContext* context, const fleet::v1::DecodeRequest* request) {
  const SequenceId id(next_id_++);
  return calls_.Serve<Parsed>(
      *context,
      [&](rpc::EventSink<fleet::v1::DecodeEvent> sink) -> absl::StatusOr<Parsed> {
        if (!hub_.takes_work()) {
          return absl::UnavailableError(
              hub_.draining() ? "this decode worker is draining: use another"
                              : "this decode worker is not ready: its link has not passed its test");
        }
        auto parsed = ParseRequest(*request, engine_, tokenizer_, markers_);
        if (!parsed.ok()) {
          probe_.Refused();
          return parsed;
        }
        Sequence& sequence = **parsed;
        if (const auto deadline = context->deadline();
            deadline != std::chrono::system_clock::time_point::max()) {
          sequence.deadline = absl::FromChrono(deadline);
        }
        static_cast<rpc::EventSink<fleet::v1::DecodeEvent>&>(sequence) = std::move(sink);
        Trace(*context, *request, sequence);
        // The router's booking lives as long as the sequence does.
        sequence.send = [send = std::move(sequence.send),
                         booked = hub_.Book(request->router_id(), request->token_ids_size())](
                            fleet::v1::DecodeEvent event) { send(std::move(event)); };
        return parsed;
      },
      [this, id](Parsed sequence) { return Submit(id, std::move(sequence)); },
      [this, id] {
        if (compiling_.erase(id) == 0) scheduler_.Cancel(id);
      },
      [this] {
        probe_.Refused();
        return absl::ResourceExhaustedError("this decode worker's mailbox is full: use another");
      });
}

}  // namespace baton::decode_service
