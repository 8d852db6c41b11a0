// RequestPreparer: a client's message becomes a Prepared request of one of the registry's models, or a
// refusal that names the field. Check is cheap and runs where the message was parsed (request_checks.h).
// Prepare does the rest in six steps, on the executor: the model, the prompt (prompt.h), its places in caches
// (cache_marks.h, reusable_parts.h), the answer's form (answer_format.h, and the grammar of chat_grammar.h),
// its draws and its end (validation.h), whose it is. `Request` is v1::GenerateRequest or v1::ChatRequest.
// Immutable, any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "router/api/grammar_check.h"
#include "router/api/model_registry.h"
#include "router/api/prepared.h"
#include "router/api/prompt.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

class RequestPreparer {
 public:
  // The registry outlives the preparer and what it prepares. `draw_seed` gives a seed to requests that bring
  // none.
  RequestPreparer(const ModelRegistry& models, std::function<uint64_t()> draw_seed)
      : models_(models), draw_seed_(std::move(draw_seed)) {}

  // max_answer_bytes: of an answer that goes out in one message; 0: it is a stream.
  template <typename Request>
  absl::Status Check(const Request& request, uint32_t max_answer_bytes = 0) const;

  using Wanted = router::Wanted;

  // The grammar that the answer is drawn under, of a request that passed Check; none: it is free. It may be a
  // refusal, or GrammarCheck::IsNew: it takes a compilation, and is asked for again with that effort, on the
  // grammars' thread.
  using Grammar = absl::StatusOr<std::optional<baton::fleet::v1::AnswerGrammar>>;
  Grammar GrammarOf(const v1::GenerateRequest& request, GrammarCheck::Effort effort) const;
  Grammar GrammarOf(const v1::ChatRequest& request, GrammarCheck::Effort effort) const;

  // Prepares a tenant's request that passed Check, with its grammar. max_answer_bytes: as for Check.
  template <typename Request>
  absl::StatusOr<Prepared> Prepare(const Request& request, const Tenant& tenant,
                                   std::optional<baton::fleet::v1::AnswerGrammar> grammar,
                                   const Wanted& wanted = nullptr, uint32_t max_answer_bytes = 0) const;
  // The same with the grammar that the request asks for, compiled here and now.
  template <typename Request>
  absl::StatusOr<Prepared> Prepare(const Request& request, const Tenant& tenant,
                                   const Wanted& wanted = nullptr) const {
    Grammar grammar = GrammarOf(request, GrammarCheck::Effort::kCompile);
    if (!grammar.ok()) return grammar.status();
    return Prepare(request, tenant, *std::move(grammar), wanted);
  }

  struct Prompt {
    std::vector<TokenId> tokens;
    std::string text;                          // that was tokenized; empty if the request has token ids
    std::optional<v1::ContextReport> context;  // if it was made to fit
  };
  // The prompt that Prepare would make of a tenant's request, which is checked as Check does. Takes what a
  // prompt can't be, up to kMaxContexts times the context: "how long is it" is a fair question of a text that
  // turns out too long.
  template <typename Request>
  absl::StatusOr<Prompt> PromptOf(const Request& request, const Tenant& tenant,
                                  const Wanted& wanted = nullptr) const;
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request) const;

  const ModelRegistry& models() const { return models_; }

 private:
  const ModelRegistry& models_;
  const std::function<uint64_t()> draw_seed_;
};

}  // namespace baton::router
