// GrammarCheck: what a request wants its answer to look like becomes the grammar that the decode worker
// enforces, or a refusal that names the field, and in it the keyword or the line. The grammar is compiled
// here too, so that none reaches a worker that would not compile there; what came of it is kept by the
// grammar's text, and what was asked for longest ago goes first. One per model. Any thread; compiling takes
// up to 200 ms, so it has a thread of its own, and others ask for what is kept.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "baton/fleet/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/base/lru_map.h"
#include "text/grammar.h"

namespace baton::router {

class GrammarCheck {
 public:
  // kCompile compiles a new grammar at once; kLookUp answers IsNew for it.
  enum class Effort { kLookUp, kCompile };
  static bool IsNew(const absl::Status& status) { return absl::IsAborted(status); }

  // A tokenizer that grammars can't work with: every constraint is refused with the reason.
  // kept: verdicts, at least 1. 256 of them take 16 MiB at most: a grammar of more than 64 KiB is not kept.
  explicit GrammarCheck(const text::Tokenizer& tokenizer, size_t kept = 256)
      : vocabulary_(text::GrammarVocabulary::Make(tokenizer)), known_(kept) {}

  bool available() const { return vocabulary_.ok(); }

  // INVALID_ARGUMENT. may_think is the caller's to set.
  absl::StatusOr<baton::fleet::v1::AnswerGrammar> GrammarOf(const v1::Constraint& constraint,
                                                            Effort effort) const;
  // INVALID_ARGUMENT: what is wrong with a grammar, and where.
  absl::Status Compiles(const std::string& lark, Effort effort) const;
  // The same of a grammar that no client has written: without place and lines, which say nothing to a client.
  absl::Status CompilesMade(const std::string& lark, Effort effort) const;

 private:
  const absl::StatusOr<std::shared_ptr<const text::GrammarVocabulary>> vocabulary_;
  mutable absl::Mutex mutex_;
  mutable LruMap<absl::Status> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::router
