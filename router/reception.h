// Reception: a client's message becomes a Prepared request, or a refusal that names the field. Two steps:
// Check is cheap and runs where the message came in; Prepare renders, tokenizes and resolves defaults, and
// runs on the executor. Immutable, any thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"
#include "router/request_flow.h"
#include "router/served_model.h"
#include "router/tenants.h"

namespace baton::router {

class Reception {
 public:
  // `draw_seed` gives a seed to requests that bring none.
  Reception(const ServedModel* model, std::function<uint64_t()> draw_seed)
      : model_(model), draw_seed_(std::move(draw_seed)) {}

  absl::Status Check(const v1::GenerateRequest& request) const;
  absl::Status Check(const v1::ChatRequest& request) const;
  absl::Status Check(const v1::TokenizeRequest& request) const;

  // Of a tenant's request that passed Check.
  absl::StatusOr<Prepared> Prepare(const v1::GenerateRequest& request, const Tenant& tenant) const;
  absl::StatusOr<Prepared> Prepare(const v1::ChatRequest& request, const Tenant& tenant) const;

  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request) const;
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request) const;

  const ServedModel& model() const { return *model_; }

 private:
  struct Rendered {
    std::string text;
    std::vector<TokenId> tokens;
  };
  // Also refuses a model without a chat template.
  absl::Status CheckConversationHere(const v1::Conversation& conversation) const;
  absl::Status CheckText(const std::string& text) const;
  absl::StatusOr<std::vector<TokenId>> EncodeText(const std::string& text) const;
  absl::StatusOr<Rendered> Render(const v1::Conversation& conversation) const;
  // What Generate and Chat share.
  template <typename Request>
  absl::Status CheckCommon(const Request& request) const;
  template <typename Request>
  absl::StatusOr<Prepared> Complete(const Request& request, const Tenant& tenant,
                                    v1::DecodeRequest decode) const;

  const ServedModel* const model_;
  const std::function<uint64_t()> draw_seed_;
};

}  // namespace baton::router
