#include "decode_service/grammar_compiler.h"

#include <utility>

#include "common/base/status.h"

namespace baton::decode_service {

using Lane = GrammarThreads::Lane;

GrammarCompiler::GrammarCompiler(std::shared_ptr<const text::GrammarVocabulary> vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)),
      kept_(options.kept),
      threads_(
          {.swift = options.threads ? 1 : 0, .slow = options.threads ? 1 : 0, .capacity = options.waiting}) {}

GrammarCompiler::~GrammarCompiler() {
  while (RunOne()) {
  }
}

bool GrammarCompiler::Compile(const std::string& salt, std::string lark, Done done) {
  const std::shared_ptr<Kept> kept = Find(lark);
  GrammarThreads::Work work;
  if (kept != nullptr) {
    work = [kept, done = std::move(done)]() mutable { done(kept->Copy()); };
  } else {
    work = [this, lark = std::move(lark), done = std::move(done)]() mutable { done(CompileNow(lark)); };
  }
  if (!threads_.Post(kept != nullptr ? Lane::kSwift : Lane::kSlow, salt, work)) return false;
  threads_.Wake();
  return true;
}

std::shared_ptr<GrammarCompiler::Kept> GrammarCompiler::Find(const std::string& lark) {
  absl::MutexLock lock(&mutex_);
  const std::shared_ptr<Kept>* const found = kept_.Find(lark);
  return found == nullptr ? nullptr : *found;
}

absl::StatusOr<text::GrammarMatcher> GrammarCompiler::CompileNow(const std::string& lark) {
  std::shared_ptr<Kept> kept = Find(lark);  // compiled since it was asked for
  if (kept == nullptr) {
    BATON_ASSIGN_OR_RETURN(text::GrammarMatcher matcher, vocabulary_->Compile(lark));
    kept = std::make_shared<Kept>(std::move(matcher));
    absl::MutexLock lock(&mutex_);
    kept_.Put(lark, kept);
  }
  return kept->Copy();
}

}  // namespace baton::decode_service
