// RandomRequests: decode requests of all kinds, drawn from a seed: greedy and sampled, with penalties,
// biases, stops, digests, parts, budgets and grammars, whose tokens repeat so that they can be drafted.
#pragma once

#include <cstdint>
#include <random>

#include "baton/fleet/v1/decode.pb.h"

namespace baton::decode_service {

struct RequestsOptions {
  // Tokens are ids from here on, 32 of them at most.
  int32_t first_token = 300;
  // True if answers may have parts and grammars: for models that have the tokens of the shipped tokenizer.
  bool formats = true;
  // Not 0: every sixth answer ends where a context of so many tokens does, if not before.
  int context = 0;
  int most_tokens = 60;  // of the longest answers that end before that
};

class RandomRequests {
 public:
  explicit RandomRequests(uint64_t seed, const RequestsOptions& options = {})
      : options_(options), random_(seed) {}

  fleet::v1::DecodeRequest Next();

  int Below(size_t n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return random_() % static_cast<uint64_t>(n) == 0; }

 private:
  // A prompt that leaves room for an answer of at most 40 tokens.
  void FillContext(fleet::v1::DecodeRequest& request);
  void AddFormat(fleet::v1::DecodeRequest& request);
  void AddGrammar(fleet::v1::DecodeRequest& request);

  const RequestsOptions options_;
  std::mt19937_64 random_;
  int number_ = 0;
};

}  // namespace baton::decode_service
