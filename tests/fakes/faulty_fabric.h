// FaultyFabric: a decorator around a fabric that holds reads, damages what they bring, loses notices, and has
// connections fail. The link's thread calls it as any fabric; the test controls it from its own thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "transfer/ucx/fabric.h"

namespace baton::transfer {

// The faults that a test asks for, and its view of the fabric. Outlives the fabric. Any thread.
class FabricFaults {
 public:
  // Reads of this region are not begun until they are let go.
  void Hold(Fabric::Region region) {
    Set([=, this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { held_.insert(region); });
  }
  void LetGo() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { held_.clear(); });
  }
  // One bit of the next payload changes on its way.
  void Damage() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { damage_ = true; });
  }
  void LoseNotices() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { lose_ = true; });
  }
  void RefuseConnections(bool refuse) {
    Set([=, this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { refuse_ = refuse; });
  }
  // Closed connections touch the memory of their reads until they are let go.
  void HoldCloses() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { hold_closes_ = true; });
  }
  void LetGoCloses() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { hold_closes_ = false; });
  }
  // Every open connection fails.
  void Break() {
    Set([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { break_ = true; });
  }

  int held() const { return Get(held_now_); }
  int closes_held() const { return Get(closes_held_now_); }
  int connections() const { return Get(connected_); }
  void Wake() const {
    absl::MutexLock lock(&mutex_);
    if (fabric_ != nullptr) fabric_->Wake();
  }

 private:
  friend class FaultyFabric;
  template <typename Change>
  void Set(Change change) {
    absl::MutexLock lock(&mutex_);
    change();
    if (fabric_ != nullptr) fabric_->Wake();
  }
  int Get(const int& value) const {
    absl::MutexLock lock(&mutex_);
    return value;
  }

  mutable absl::Mutex mutex_;
  Fabric* fabric_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::set<Fabric::Region> held_ ABSL_GUARDED_BY(mutex_);
  bool damage_ ABSL_GUARDED_BY(mutex_) = false;
  bool lose_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuse_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_closes_ ABSL_GUARDED_BY(mutex_) = false;
  bool break_ ABSL_GUARDED_BY(mutex_) = false;
  int held_now_ = 0, closes_held_now_ = 0, connected_ = 0;
};

class FaultyFabric final : public Fabric {
 public:
  FaultyFabric(std::unique_ptr<Fabric> fabric, FabricFaults& faults);
  ~FaultyFabric() override;

  std::string version() const override { return fabric_->version(); }
  const std::string& address() const override { return fabric_->address(); }
  absl::StatusOr<std::string> Register(Region region, std::byte* data, int64_t bytes) override {
    return fabric_->Register(region, data, bytes);
  }
  absl::StatusOr<Endpoint> Connect(const std::string& from, const std::string& address,
                                   const std::string& payload_key, const std::string& slot_key) override;
  void Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
            uint64_t number) override;
  void Notify(Endpoint endpoint, std::string_view notice) override;
  void Close(Endpoint endpoint) override;
  void Progress(std::vector<Event>& events) override;
  bool idle() const override { return fabric_->idle() && waiting_.empty() && late_.empty(); }
  void Wait(absl::Duration most) override { fabric_->Wait(most); }
  void Wake() override { fabric_->Wake(); }

 private:
  struct Waiting {
    Endpoint endpoint;
    Region region;
    uint64_t from;
    std::byte* to;
    int64_t bytes;
    uint64_t number;
  };

  const std::unique_ptr<Fabric> fabric_;
  FabricFaults& faults_;
  std::set<Endpoint> open_;
  std::deque<Waiting> waiting_;              // held
  std::vector<Event> late_;                  // ends of reads of closed connections, held
  std::map<uint64_t, std::byte*> payloads_;  // where payloads land, by number
};

}  // namespace baton::transfer
