// StepGate: says when a worker's roles may step, so that a test can hold a worker in the middle of its work.
// A worker that is held does everything but step: it takes mail, tells its load, serves peers, drains and
// ends. In production there is none. Engine thread.
#pragma once

namespace baton::worker {

class StepGate {
 public:
  virtual ~StepGate() = default;
  // Asked before each step. False: the worker is held, and asks again a millisecond later.
  virtual bool MayStep() = 0;
  // After a step. `busy`: it did something.
  virtual void Stepped(bool busy) = 0;
};

}  // namespace baton::worker
