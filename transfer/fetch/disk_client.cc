#include "transfer/fetch/disk_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/digest.h"

namespace baton::fetch {

struct DiskClient::Shared {
  Shared(const Options& options, engine::Loop& loop, kv::tier::DiskTier& tier)
      : options(options),
        loop(loop),
        tier(tier),
        chunk_blocks(std::max<int64_t>(1, options.max_chunk_bytes / tier.store().identity().block_bytes)) {}

  const Options options;
  engine::Loop& loop;
  kv::tier::DiskTier& tier;
  const int64_t chunk_blocks;
  std::unique_ptr<kv::tier::PageBuffer> slots;  // reading thread
};

struct DiskClient::Load {
  std::vector<kv::BlockHash> hashes;
  fleet::v1::Ticket ticket;
  // Engine thread; empty once the call has ended or its owner has let go.
  Callbacks callbacks;

  int64_t next = 0;  // block to read; reading thread
  absl::Mutex mutex;
  int credit ABSL_GUARDED_BY(mutex) = 0;       // chunks that may be read before the next Next
  bool reading ABSL_GUARDED_BY(mutex) = true;  // a task of it is or will be on the reading thread
  bool over ABSL_GUARDED_BY(mutex) = false;    // nothing more is read

  // Any thread. Callbacks run on the engine thread, from copies: the owner may destroy the call from inside.
  static void PostEvent(engine::Loop& loop, const std::shared_ptr<Load>& load, fleet::v1::FetchEvent event) {
    loop.PostAlways([load, event = std::move(event)]() mutable {
      if (const auto handle = load->callbacks.event) handle(std::move(event));
    });
  }
  static void PostDone(engine::Loop& loop, const std::shared_ptr<Load>& load, absl::Status status) {
    {
      absl::MutexLock lock(&load->mutex);
      load->over = true;
    }
    loop.PostAlways([load, status = std::move(status)] {
      load->callbacks.event = nullptr;
      if (const auto handle = std::exchange(load->callbacks.done, nullptr)) handle(status);
    });
  }
};

// Ends loads whose time is over, on a thread of its own: that which reads may hang with the disk.
class DiskClient::Deadlines {
 public:
  explicit Deadlines(engine::Loop& loop) : loop_(loop), thread_([this] { Run(); }) {}
  ~Deadlines() {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    thread_.join();
  }
  void Add(absl::Duration patience, const std::shared_ptr<Load>& load) {
    absl::MutexLock lock(&mutex_);
    loads_.emplace(clock_.Now() + patience, load);
    news_ = true;
  }

 private:
  void Run() {
    absl::MutexLock lock(&mutex_);
    while (!ended_) {
      const absl::Time first = loads_.empty() ? absl::InfiniteFuture() : loads_.begin()->first;
      mutex_.AwaitWithTimeout(absl::Condition(this, &Deadlines::Woken), first - clock_.Now());
      news_ = false;
      const absl::Time now = clock_.Now();
      while (!loads_.empty() && loads_.begin()->first <= now) {
        const std::shared_ptr<Load> load = loads_.begin()->second.lock();
        loads_.erase(loads_.begin());
        if (load == nullptr) continue;  // it has ended
        Load::PostDone(loop_, load, absl::DeadlineExceededError("the disk takes too long"));
      }
    }
  }
  bool Woken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || news_; }

  engine::Loop& loop_;
  const MonotonicClock clock_;
  absl::Mutex mutex_;
  std::multimap<absl::Time, std::weak_ptr<Load>> loads_ ABSL_GUARDED_BY(mutex_);
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

DiskClient::DiskClient(const Options& options, engine::Loop& loop, kv::tier::DiskTier& tier)
    : shared_(std::make_shared<Shared>(options, loop, tier)), deadlines_(std::make_unique<Deadlines>(loop)) {}

DiskClient::~DiskClient() = default;

std::unique_ptr<rpc::EventCall> DiskClient::Call(const std::string& /*address*/,
                                                 fleet::v1::FetchRequest request, absl::Duration patience,
                                                 const telemetry::TraceContext& /*trace*/,
                                                 Callbacks callbacks) {
  class DiskCall final : public rpc::EventCall {
   public:
    DiskCall(std::shared_ptr<Shared> shared, std::shared_ptr<Load> load)
        : shared_(std::move(shared)), load_(std::move(load)) {}
    ~DiskCall() override {
      load_->callbacks = {};
      absl::MutexLock lock(&load_->mutex);
      load_->over = true;
    }
    void Next() override {
      absl::MutexLock lock(&load_->mutex);
      ++load_->credit;
      if (load_->reading || load_->over) return;
      load_->reading = true;
      shared_->tier.PostRead([shared = shared_, load = load_] { ReadSome(shared, load); });
    }

   private:
    const std::shared_ptr<Shared> shared_;
    const std::shared_ptr<Load> load_;
  };

  const auto load = std::make_shared<Load>();
  const std::string_view bytes = request.hashes();
  for (size_t at = 0; at + kv::BlockHash::kBytes <= bytes.size(); at += kv::BlockHash::kBytes) {
    load->hashes.push_back(kv::BlockHash::FromBytes(bytes.substr(at, kv::BlockHash::kBytes)));
  }
  load->hashes.resize(static_cast<size_t>(shared_->tier.store().Match(load->hashes)));
  load->ticket = std::move(*request.mutable_ticket());
  load->callbacks = std::move(callbacks);
  {
    absl::MutexLock lock(&load->mutex);
    load->credit = shared_->options.ahead;
  }
  fleet::v1::FetchEvent found;
  found.mutable_found()->set_blocks(static_cast<uint32_t>(load->hashes.size()));
  Load::PostEvent(shared_->loop, load, std::move(found));
  deadlines_->Add(patience, load);
  shared_->tier.PostRead([shared = shared_, load] { ReadSome(shared, load); });
  return std::make_unique<DiskCall>(shared_, load);
}

void DiskClient::ReadSome(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Load>& load) {
  {
    absl::MutexLock lock(&load->mutex);
    if (load->over) return;
  }
  kv::tier::BlockStore& store = shared->tier.store();
  const int64_t slot_bytes = store.identity().slot_bytes(), block_bytes = store.identity().block_bytes;
  if (load->next < std::ssize(load->hashes)) {
    if (shared->slots == nullptr) {
      shared->slots = std::make_unique<kv::tier::PageBuffer>(shared->chunk_blocks * slot_bytes);
    }
    const int64_t count =
        store.ReadRun(std::span(load->hashes).subspan(static_cast<size_t>(load->next)), *shared->slots);
    if (count == 0) {
      Load::PostDone(shared->loop, load,
                     absl::DataLossError(fmt::format("block {} of {} is not on disk any more, or no good",
                                                     load->next, load->hashes.size())));
      return;
    }
    fleet::v1::FetchEvent event;
    fleet::v1::KvChunk& chunk = *event.mutable_chunk();
    chunk.set_incarnation(load->ticket.incarnation());
    chunk.set_ticket_id(load->ticket.id());
    chunk.set_first_block(static_cast<uint32_t>(load->next));
    chunk.set_first_layer(0);
    chunk.set_layers(static_cast<uint32_t>(shared->options.layers));
    std::string& data = *chunk.mutable_data();
    data.reserve(static_cast<size_t>(count * block_bytes));
    for (int64_t i = 0; i < count; ++i) {
      chunk.add_generations(load->ticket.generations(static_cast<int>(load->next + i)));
      data.append(reinterpret_cast<const char*>(shared->slots->bytes().data()) + i * slot_bytes,
                  static_cast<size_t>(block_bytes));
    }
    chunk.set_crc32c(Crc32c(data));
    load->next += count;
    Load::PostEvent(shared->loop, load, std::move(event));
  }
  if (load->next >= std::ssize(load->hashes)) {
    Load::PostDone(shared->loop, load, absl::OkStatus());
    return;
  }
  absl::MutexLock lock(&load->mutex);
  load->reading = --load->credit > 0 && !load->over;
  if (load->reading) shared->tier.PostRead([shared, load] { ReadSome(shared, load); });
}

}  // namespace baton::fetch
