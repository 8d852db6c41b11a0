// GrammarCompiler: the grammars of requests, compiled beside the engine before their requests are admitted.
// Compiled grammars are kept, as many as Options says: the one that was asked for longest ago goes first. A
// grammar that is kept waits for no compilation. Tenants take turns (GrammarThreads), so a tenant that sends
// many new grammars waits for itself. The thread for new grammars has a lower priority. Any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/lru_map.h"
#include "decode_service/grammar_threads.h"
#include "text/grammar.h"

namespace baton::decode_service {

class GrammarCompiler {
 public:
  struct Options {
    // False: whoever calls RunOne does the work.
    bool threads = true;
    // Grammars that may wait: new ones, and likewise ones that are kept.
    size_t waiting = 256;
    // Compiled grammars that are kept.
    size_t kept = 32;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<text::GrammarMatcher>)>;

  GrammarCompiler(std::shared_ptr<const text::GrammarVocabulary> vocabulary, Options options);
  // Does what waits.
  ~GrammarCompiler();

  // Calls `done` once, on another thread, with a matcher at the beginning of the grammar, or with
  // INVALID_ARGUMENT (GrammarVocabulary::Compile). salt: of the tenant that asks. False: too many grammars
  // of that tenant wait, and `done` is not called.
  [[nodiscard]] bool Compile(const std::string& salt, std::string lark, Done done);
  // Does what is next, kept grammars first. False: there is nothing.
  bool RunOne() { return threads_.RunOne(); }

 private:
  // A matcher at its beginning, of which answers get copies. One thread at a time copies it.
  struct Kept {
    explicit Kept(text::GrammarMatcher compiled) : matcher(std::move(compiled)) {}
    text::GrammarMatcher Copy() {
      absl::MutexLock lock(&mutex);
      return matcher.Fork();
    }
    absl::Mutex mutex;
    text::GrammarMatcher matcher ABSL_GUARDED_BY(mutex);
  };

  // Null: it is not kept.
  std::shared_ptr<Kept> Find(const std::string& lark);
  absl::StatusOr<text::GrammarMatcher> CompileNow(const std::string& lark);

  const std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  absl::Mutex mutex_;
  LruMap<std::shared_ptr<Kept>> kept_ ABSL_GUARDED_BY(mutex_);  // by the grammar's text, of 64 KiB at most
  GrammarThreads threads_;
};

}  // namespace baton::decode_service
