// ReuseForecast: how much a cached block of a given kind and age is worth, learnt from when such blocks were
// used again, those that had been evicted meanwhile included. The worth is the Gittins index of keeping it:
// the best, over all times T from now, of
//
//     P(it is used again within T) / E(time that it takes up until then, T at most)
//
// which is what an optimal policy ranks by when every block takes the same room (Gittins 1979; Beckmann et
// al. call a close relative hit density, NSDI'18). It has no shape built in: where reuse comes early the old
// are worth least, as with least recently used; where it comes later than a small cache turns over, the young
// are.
//
// Age is measured in blocks that entered the cache. Plain arithmetic, one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace baton::kv {

class ReuseForecast {
 public:
  // A block's history when its last reference is given up.
  enum Kind : uint8_t {
    kNewCold,       // computed just now, for a prompt that found nothing cached
    kNewReturning,  // computed just now, for a prompt that did
    kUsedTwice,
    kUsedThrice,
    kUsedOften,
    kKinds,
  };

  explicit ReuseForecast(int64_t blocks);

  // A block entered the order.
  void Entered(Kind kind);
  // One was used again at this age, cached still or evicted.
  void Reused(Kind kind, uint64_t age);
  // The chance that a block of this kind is used again at all, cached still or not.
  double ReuseShare(Kind kind) const;
  double Worth(Kind kind, uint64_t age) const { return worth_[kind][Bucket(age)]; }

 private:
  // Two to a doubling of age.
  static constexpr int kBuckets = 64;
  static int Bucket(uint64_t age);
  static double Start(int bucket);
  void Learn();

  const int64_t blocks_;
  int64_t until_learning_;
  std::array<double, kKinds> entered_{};
  std::array<std::array<double, kBuckets>, kKinds> reused_{};
  std::array<std::array<double, kBuckets>, kKinds> worth_{};
};

}  // namespace baton::kv
