// HeldAnswer: an answer with an idempotency key, which outlives the call that asked for it. It stands between
// the call that computes it, whose ClientStream it is, and the clients that read it, of whom there may be
// several and none. It keeps every message, so a client may begin at any token; each reads at its own pace,
// and the computation at that of the fastest. When the last one has left, the computation is ended, and what
// it takes to go on from there (Begun) is kept: the next client's call goes on from the last token.
//
//     New ──> Running ──all clients left──> Stopping ──> Broken ──a client comes──> Running
//                │                                          │
//                └──> Ended (whole)                         └──> Gone (nothing is kept)
//
// A computation that fails leaves the answer Broken too, and its clients hear why. Any thread; nothing is
// called with the lock held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "baton/v1/inference.pb.h"
#include "router/admission/tenant_limits.h"
#include "router/api/client_stream.h"
#include "router/api/request_flow.h"
#include "router/billing/token_counts.h"

namespace baton::router {

class HeldAnswers;

// Seed and build of an answer, beside the rest of its request: those that the request names, or those that it
// got.
struct Drawn {
  std::optional<uint64_t> seed;
  std::string build;  // empty: any
};

// A call that takes part in a held answer: it may read it, compute it, or both. The answer holds it
// meanwhile.
class AnswerCall {
 public:
  virtual ~AnswerCall() = default;

  // Compute the answer into its ClientStream, with one token in each delta: on from `begun`, or from the
  // beginning; then as it was `drawn`, if clients have had a part of it. `charged` was recorded of it before.
  virtual void Produce(std::optional<Begun> begun, std::optional<Drawn> drawn,
                       const billing::TokenCounts& charged) = 0;
  // The message of the last Write was taken.
  virtual void OnTaken() = 0;
  // Nobody reads the answer: it is to be ended.
  virtual void OnUnread() = 0;
  // A message begins to be written to this call's client.
  virtual void OnWriting() = 0;
  // This call's client has its end; it did not compute the answer.
  virtual void OnServed(const absl::Status& status) = 0;
};

class HeldAnswer final : public ClientStream, public std::enable_shared_from_this<HeldAnswer> {
 public:
  struct Name {
    admission::TenantId tenant;
    std::string id;      // of the request that asked for it first
    std::string key;     // empty: it has none
    std::string digest;  // of the request, but for its seed, and of the tenant's salt
  };
  // A name for what is charged of the answer with this seed, the same on every router that is asked for it by
  // the same key, or else by the same id.
  std::string ChargedAs(uint64_t seed) const { return ChargedAs(name_, seed); }
  static std::string ChargedAs(const Name& name, uint64_t seed);
  HeldAnswer(Name name, HeldAnswers& all);

  const Name& name() const { return name_; }
  // Nobody has joined it.
  bool IsNew() const;
  // NOT_FOUND (ANSWER_NOT_HELD).
  static absl::Status NotHeld();

  // One client of the answer, and its call. All of it is the answer's.
  struct Reader {
    std::shared_ptr<ClientStream> client;  // null, as the call: it is over
    std::shared_ptr<AnswerCall> call;
    std::vector<uint32_t> after;  // tokens that it has, by choice
    size_t next = 0;              // of the log
    bool can_begin = false;
    bool computes = false;  // its call does, or did
    size_t told = 0;        // of progress, how many times
    bool begun = false;     // it has tokens
    bool pumping = false;
    bool writing = false;
    bool telling = false;  // what it writes is no message of the log
    bool announced = false;
    bool awaits_usage = false;  // it left last: the computation's end tells what was used
    std::optional<absl::Status> left;
    std::optional<v1::RequestUsage> usage;
  };

  struct Joined {
    std::shared_ptr<Reader> reader;  // null: the answer is gone, or can't go on without the request
    // The call may have to compute the answer from its beginning.
    bool may_begin = false;
  };
  // A client reads the answer, behind `after` tokens of each choice. `can_begin`: its call has the request,
  // and can compute it from the beginning.
  Joined Join(std::shared_ptr<ClientStream> client, std::shared_ptr<AnswerCall> call,
              std::vector<uint32_t> after, bool can_begin);

  // The reader's client took a message, or (not ok) is gone.
  void OnWritten(const std::shared_ptr<Reader>& reader, bool ok);
  // The reader's client has its end with `status`, as soon as a message on its way is taken or lost.
  void Leave(const std::shared_ptr<Reader>& reader, const absl::Status& status);
  // As Leave, over a message that the client does not take.
  void BreakOff(const std::shared_ptr<Reader>& reader, const absl::Status& status);
  // The reader's call computes the answer, or did.
  bool Computes(const std::shared_ptr<Reader>& reader) const;

  // Before Finish with an error: what the computation leaves.
  struct Remains {
    std::optional<Begun> begun;
    std::vector<v1::GenerateResponse> unsent;
    billing::TokenCounts charged;
  };
  void LeaveBehind(Remains remains);

  // For the registry: its bytes, and whether nobody uses it. Nothing is to be held: no value.
  struct Use {
    size_t bytes = 0;
    bool idle = false;
  };
  std::optional<Use> use() const;
  // Nothing: not known yet.
  std::optional<Drawn> drawn() const;
  // Holds nothing any more. What runs goes on for the client that has read most.
  void Drop();

  // ClientStream, called by the call that computes it.
  uint32_t max_answer_bytes() const override;
  void Admitted(const std::string& request_id, bool waits) override;
  void Write(const v1::GenerateResponse& response, bool more) override;
  void Finish(const absl::Status& status, const v1::GenerateResponse* last,
              const v1::RequestUsage* usage) override;
  // No message ever waits for one client.
  void Abort(const absl::Status&) override {}

 private:
  enum class State { kNew, kRunning, kStopping, kBroken, kEnded, kGone };
  struct Entry {
    size_t begin, size;  // in log_
    int choice;          // -1: no delta
    uint32_t tokens;     // of the choice, with this delta
    uint32_t own;        // in it
  };
  using Readers = std::vector<std::shared_ptr<Reader>>;

  // Appends to the log, which has no progress. True: its memory has grown.
  bool Append(const v1::GenerateResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Progress: no client holds up the computation over it, and who comes later has no use for it.
  void Tell(const v1::GenerateResponse& response);
  v1::GenerateResponse Message(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ClearLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A reader that has not left and whose call can go on with what remains; null: none.
  std::shared_ptr<Reader> Heir() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The reader's call computes it from now on: Launch follows, without the lock.
  void Appoint(const std::shared_ptr<Reader>& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Launch();
  // Writes what the reader may have, and ends it.
  void Pump(const std::shared_ptr<Reader>& reader);
  void PumpAll();
  // The call that computes it is to end.
  void Stop();
  // Takes the reader out.
  void Remove(const std::shared_ptr<Reader>& reader) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Name name_;
  HeldAnswers& all_;
  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  std::string log_ ABSL_GUARDED_BY(mutex_);  // serialized messages
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> tokens_ ABSL_GUARDED_BY(mutex_);  // by choice
  // The latest, which takes the place of those before, and how many there have been.
  v1::GenerateResponse progress_ ABSL_GUARDED_BY(mutex_);
  size_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  Readers readers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<AnswerCall> producer_ ABSL_GUARDED_BY(mutex_);  // null unless Running or Stopping
  bool launching_ ABSL_GUARDED_BY(mutex_) = false;                // its Produce has not returned
  bool untaken_ ABSL_GUARDED_BY(mutex_) = false;                  // its last message
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
  bool dropped_ ABSL_GUARDED_BY(mutex_) = false;
  Remains remains_ ABSL_GUARDED_BY(mutex_);
  std::optional<Drawn> drawn_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::RequestUsage> usage_ ABSL_GUARDED_BY(mutex_);
  uint32_t max_answer_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::router
