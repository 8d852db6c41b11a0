// PastAnswers: finished answers of each tenant's salt, from which a further answer of that salt may be
// copied: what one tenant was answered never shapes what another one waits for. Two texts per salt, the older
// of which goes when the newer is full, or when it is old; the salt that has been silent longest goes when
// all take too much memory. Tokens only, never on disk, gone with the process. Engine thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "decode_service/drafting/drafter.h"
#include "decode_service/drafting/ngram_index.h"
#include "decode_service/drafting/survival.h"

namespace baton::decode_service::drafting {

class PastAnswers {
 public:
  struct Limits {
    size_t bytes = size_t{64} << 20;         // of all salts
    size_t tokens = size_t{32} << 10;        // of a text
    absl::Duration age = absl::Minutes(30);  // since the last answer went into it
  };
  explicit PastAnswers(const Limits& limits) : limits_(limits) {}
  PastAnswers() : PastAnswers(Limits()) {}

  // An answer has ended. before: the prompt, whose last tokens are kept with it.
  void Add(const std::string& salt, std::span<const TokenId> before, std::span<const TokenId> answer,
           absl::Time now);
  // Null: there is none of this salt.
  std::unique_ptr<Drafter> DrafterFor(const std::string& salt, absl::Time now);

  // Lets texts go that are too old, a minute later at most. For every step of a worker, one without work too.
  void ForgetOld(absl::Time now);

  size_t bytes() const { return bytes_; }
  size_t salts() const { return salts_.size(); }

 private:
  friend class PastAnswersDrafter;
  // Answers in a row, each behind a mark that no token is.
  struct Text {
    std::vector<TokenId> tokens;
    NgramIndex index;
    absl::Time last;
    size_t bytes() const { return tokens.capacity() * sizeof(TokenId) + index.bytes(); }
  };
  struct OfSalt {
    std::shared_ptr<Text> newer, older;  // null: none
  };
  void Forget(const std::string& salt);

  const Limits limits_;
  absl::flat_hash_map<std::string, OfSalt> salts_;
  size_t bytes_ = 0;
  absl::Time looked_ = absl::InfinitePast();  // for what is too old
};

}  // namespace baton::decode_service::drafting
