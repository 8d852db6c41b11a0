// PrefillWorker: a simulated prefill worker. The queue, the block pool and its eviction are the real ones
// (prefill_service/queue.h, engine/kv/index); the time that a prompt takes is the model's. It serves one
// prompt at a time. A prefix that is fetched from a peer, or read from its disk, travels while the prompt
// waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/kv/index/block_pool.h"
#include "lab/simulate/disk.h"
#include "lab/simulate/events.h"
#include "lab/simulate/fleet_model.h"
#include "lab/simulate/links.h"
#include "lab/simulate/request_record.h"
#include "lab/simulate/variation.h"
#include "prefill_service/queue.h"
#include "protocol/forecast/prefill_forecast.h"

namespace baton::lab::simulate {

enum class Discipline { kFirstCome, kVirtualDeadline };

class PrefillWorker {
 public:
  struct Setup {
    int number = 0;
    Discipline discipline = Discipline::kFirstCome;
    forecast::QueueTargets targets = forecast::QueueTargets::For(forecast::kDefaultSloTtft);
    // Called when a prompt's compute begins and when it is done.
    std::function<void(RequestRecord&)> began;
    std::function<void(RequestRecord&)> done;
    // Decides how long prompts take.
    uint64_t seed = 0;
  };
  // All outlive it.
  PrefillWorker(const FleetModel& model, Setup setup, Events& events, Links& links, kv::BlockPool& pool,
                Disk& disk);

  // A worker, of either kind, that a prefix is fetched from: its cache and its port.
  struct Peer {
    kv::BlockPool* pool = nullptr;
    size_t port = 0;
  };
  // `source` is where to fetch the record's prefix from, if from anywhere.
  void Submit(RequestRecord& record, std::optional<Peer> source);

  kv::BlockPool& pool() { return pool_; }
  double busy_seconds() const { return busy_seconds_; }
  int64_t served() const { return served_; }

 private:
  struct Job {
    RequestRecord* record = nullptr;
    int64_t matched = 0;  // blocks cached here when last looked
    bool fetching = false;
    std::vector<BlockId> fetched;  // held: the prefix, whether it was here or came
    int64_t fetched_blocks = 0;    // of those, what came
    bool from_disk = false;        // and not from a peer
  };

  int64_t Reused(const Job& job, int64_t blocks) const;
  forecast::VirtualDeadline Due(const Job& job) const;
  void Fetch(Job& job, const Peer& source);
  void Load(Job& job);
  // Holds room for the first `blocks` blocks of the prompt, those that are cached here among them. False:
  // there is none.
  bool MakeRoom(Job& job, int64_t blocks);
  void Arrived(uint64_t id);
  void TryBegin();
  bool Begin(Job& job);
  void Finish(RequestRecord& record, std::vector<BlockId> blocks);
  void Reconsider();

  const FleetModel& model_;
  const Setup setup_;
  Variation variation_;
  Events& events_;
  Links& links_;
  kv::BlockPool& pool_;
  Disk& disk_;
  prefill_service::Queue queue_;
  std::map<uint64_t, Job> jobs_;  // in order: what happens to several happens in the same order in each run
  forecast::PrefillForecast forecast_;
  bool busy_ = false;
  double busy_seconds_ = 0;
  int64_t served_ = 0;
};

}  // namespace baton::lab::simulate
