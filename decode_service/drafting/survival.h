// Survival: how often a drafter's next token is right, by how many tokens in a row it has been right before:
// the further a copy has agreed, the likelier it goes on. Learnt for one answer, from every token of it; or
// for all answers of a worker, and then what a new answer begins with. Plain data, engine thread.
#pragma once

#include <array>
#include <cstddef>

namespace baton::decode_service::drafting {

class Survival {
 public:
  // Up to 3 tokens, 7, 15, 31, and more.
  static constexpr size_t kClasses = 5;
  using Chances = std::array<double, kClasses>;

  // `prior`: what is expected before anything is seen; it counts like `weight` tokens.
  explicit Survival(const Chances& prior, double weight = 2) : prior_(prior), weight_(weight) {}
  // Before anything is seen, the expectation is what `others` have seen so far, with the weight of theirs;
  // they outlive it.
  explicit Survival(const Survival* others) : others_(others), weight_(others->weight_) {}

  // The chance that the next token is right after `agreed` right ones.
  double Chance(size_t agreed) const;
  void Observe(size_t agreed, bool right);
  // So much of what was seen still counts, below 1: a drafter that costs something and has been given up is
  // tried again some time.
  void Fade(double rest);

 private:
  // A token counts half as much after about 35 more of its class.
  static constexpr double kForgetting = 0.98;
  static size_t ClassOf(size_t agreed);

  Chances prior_{};                   // without others
  const Survival* others_ = nullptr;  // null: none
  double weight_;
  std::array<double, kClasses> seen_{};
  std::array<double, kClasses> right_{};
};

}  // namespace baton::decode_service::drafting
