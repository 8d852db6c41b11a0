// Booking: this router's claim on a decode worker, and on the prefill worker that will likely serve it, from
// the moment of placement. It weighs in the next placement at once, before any worker reports it. Released in
// one place, Release(), which the destructor calls too; releasing twice does nothing. Movable; one thread at
// a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "router/fleet/worker.h"

namespace baton::router::fleet {

class Fleet;

// A request's weight.
struct Work {
  Work(int64_t tokens) : context_tokens(tokens), uncached_tokens(tokens) {}  // NOLINT: tests book tokens
  int64_t context_tokens = 0;                                                // of its prompt
  int64_t uncached_tokens = 0;                                               // to compute,
  int64_t cached_tokens = 0;                                                 // behind these
  // In the queue of the worker that computes them.
  absl::Time due = absl::InfiniteFuture();
};

class Booking {
 public:
  Booking() = default;
  Booking(Booking&& other) noexcept;
  Booking& operator=(Booking&& other) noexcept;
  ~Booking() { Release(); }

  explicit operator bool() const { return decode_ != nullptr; }
  const Worker* decode() const { return decode_.get(); }

  // The decode worker reserved blocks.
  void Accepted();
  // The decode worker had no blocks. Releases.
  void Refused(absl::Time now);
  // The prompt is computed: ends the booking of the worker that computed it. `now`: when, if that is known.
  void FirstToken(absl::Time now = absl::InfiniteFuture());
  void Release();

 private:
  friend class Fleet;
  Booking(Fleet* fleet, std::shared_ptr<Worker> decode, std::shared_ptr<Worker> prefill, const Work& work,
          bool trial, absl::Time now);

  Fleet* fleet_ = nullptr;
  std::shared_ptr<Worker> decode_;
  std::shared_ptr<Worker> computes_;  // until the first token
  uint64_t prompt_ = 0;               // booked on it
  int64_t tokens_ = 0;
  bool trial_ = false;
  bool accepted_ = false;
};

}  // namespace baton::router::fleet
