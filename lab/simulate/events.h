// Events: the simulation's clock and what is to happen when. Equal times happen in the order in which they
// were asked for, so a run is a function of its input alone.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace baton::lab::simulate {

class Events {
 public:
  // Seconds since the start.
  double now() const { return now_; }
  void At(double time, std::function<void()> what) {
    queue_.push({std::max(time, now_), ++asked_, std::move(what)});
  }
  void In(double seconds, std::function<void()> what) { At(now_ + seconds, std::move(what)); }
  // The next event. False if nothing is left to happen.
  bool Step() {
    if (queue_.empty()) return false;
    Event event = std::move(const_cast<Event&>(queue_.top()));  // popped at once: the order is not at stake
    queue_.pop();
    now_ = event.time;
    event.what();
    return true;
  }

 private:
  struct Event {
    double time;
    uint64_t number;
    std::function<void()> what;
    friend bool operator<(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };
  double now_ = 0;
  uint64_t asked_ = 0;
  std::priority_queue<Event> queue_;
};

}  // namespace baton::lab::simulate
