// BatchBound: whether one more request keeps the steps of a decode worker within the target of TPOT. The
// worker says with how many answers they are (Load.answers_in_time). Of its requests some run; the others
// wait for their first tokens and join over the time W that first tokens take now, in which of those that run
// some end: answers last for L seconds on average. When the newcomer joins, the batch is expected to be
//
//     running * exp(-W / L) + (waiting + 1) * (1 - exp(-W / L)) / (W / L)
//
// which is all of them where W is short, and by Little's law the arrivals within L where it is long: then the
// prompts' queue is what bounds the batch. Plain data, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

namespace baton::router {

class BatchBound {
 public:
  // A first token came so many seconds after its request had been placed. Absurd values are ignored.
  void ObserveFirstToken(double seconds);
  // The last token of an answer came so many seconds after the first.
  void ObserveAnswer(double seconds);

  // A worker has so many requests, of which `running` have their first token, and its steps are in time with
  // up to `answers`. One that has nothing to do takes a request in any case.
  bool Allows(int64_t answers, int64_t running, int64_t requests) const;

 private:
  static void Observe(double seconds, std::optional<double>& mean);

  std::optional<double> first_token_;  // seconds; of the latest, weighted towards the last
  std::optional<double> answer_;
};

}  // namespace baton::router
