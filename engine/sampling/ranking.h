// Ranking: a vocabulary in descending order of probability, sorted only where somebody looks. Tokens are
// dropped into buckets by how far their logit lies below the largest one; a bucket's mass is known without
// sorting it. Finding the end of a top-p or the token of a draw thus costs a few passes over the logits and
// the sorting of one bucket, however flat the distribution. Every result is a function of the arguments
// alone. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace baton::sampling {

struct Candidate {
  float logit;
  int32_t id;
  // The order of ranks: descending logits, ties by ascending id.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
};

// Where the kept head of an order ends. All weights and masses are in units of the likeliest token's weight.
struct Cut {
  double mass = std::numeric_limits<double>::infinity();  // ends once so much is kept (top-p)
  double weight = 0;                                      // ends before a token below this weight (min-p)

  bool EndsBefore(double next_weight, double kept_mass) const {
    return next_weight == 0 || next_weight < weight || (kept_mass > 0 && kept_mass >= mass);
  }
};

class Ranking {
 public:
  // Ranks `logits`, which stay where they are until the next call; `max` is the largest of them, finite.
  // Tokens of weight 0 have no rank.
  void Rank(std::span<const float> logits, float max, double inverse_temperature);

  // Mass of all ranked tokens, at least 1.
  double total() const { return total_; }

  // Keeps the head that ends at `cut` and returns its mass.
  double Keep(const Cut& cut);

  // The kept token at which the running mass first exceeds `share` of the kept mass; `share` is in [0, 1).
  int32_t At(double share);

  // How many tokens are kept.
  int64_t kept_count() const;

  // All kept tokens in order. Sorts them all.
  std::vector<Candidate> Kept();

 private:
  static constexpr int kBuckets = 4096;
  // Buckets are 1 / 128 wide in units of logit / temperature; the last one takes all that is 32 or more below
  // the largest.
  static constexpr int kBucketsPerUnit = 128;

  double WeightOf(const Candidate& candidate) const;
  // Sorts bucket `bucket` into sorted_.
  void Sort(int bucket);

  std::span<const float> logits_;
  float max_ = 0;
  double inverse_temperature_ = 1;
  std::vector<int32_t> bucket_of_;  // by token
  std::array<double, kBuckets> mass_ = {};
  std::array<int32_t, kBuckets> count_ = {};
  int32_t used_ = 0;  // no bucket from here on has a ranked token
  double total_ = 0;
  // The kept head: all buckets before last_, and of that one the first `kept_in_last_` tokens.
  int last_ = 0;
  int32_t kept_in_last_ = 0;
  double kept_mass_in_last_ = 0;
  double kept_mass_ = 0;
  std::vector<Candidate> sorted_;
  int sorted_bucket_ = -1;
};

}  // namespace baton::sampling
