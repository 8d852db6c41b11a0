// RequestPreparer: a client's message becomes a Prepared request, or a refusal that names the field. Two
// steps: Check is cheap and runs where the message was parsed; Prepare renders, tokenizes and resolves
// defaults, and runs on the executor. What Prepare may cost is bounded by the model's context before it is
// spent: a text that can't fit is refused by its bytes, a conversation by the number of its parts. Immutable,
// any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"
#include "router/api/prepared.h"
#include "router/api/served_model.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

class RequestPreparer {
 public:
  // `draw_seed` gives a seed to requests that bring none.
  RequestPreparer(const ServedModel* model, std::function<uint64_t()> draw_seed)
      : model_(model), draw_seed_(std::move(draw_seed)) {}

  absl::Status Check(const v1::GenerateRequest& request) const;
  absl::Status Check(const v1::ChatRequest& request) const;
  absl::Status Check(const v1::TokenizeRequest& request) const;

  // Whether the call still waits for the result; asked between the steps of the work and during the long
  // ones, which end with CANCELLED once it says false. Null: always.
  using Wanted = std::function<bool()>;

  // Of a tenant's request that passed Check.
  absl::StatusOr<Prepared> Prepare(const v1::GenerateRequest& request, const Tenant& tenant,
                                   const Wanted& wanted = nullptr) const;
  absl::StatusOr<Prepared> Prepare(const v1::ChatRequest& request, const Tenant& tenant,
                                   const Wanted& wanted = nullptr) const;

  // Of a tenant's request that passed Check. Takes what a prompt can't be, up to kMaxContexts times the
  // context: "how long is it" is a fair question of a text that turns out too long.
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request, const Tenant& tenant,
                                                const Wanted& wanted = nullptr) const;
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request) const;

  const ServedModel& model() const { return *model_; }

  // Tokens that are counted at most, in contexts of the model: as many as it takes to say by how much a
  // prompt is too long.
  static constexpr int64_t kMaxContexts = 4;
  // Bytes of text per token of the context that are looked at. Prose has 4 to 5, and what has more in the
  // mean of a whole context is no text; a few tokens, such as runs of spaces, have up to 128.
  static constexpr int64_t kMaxBytesPerToken = 16;

 private:
  struct Rendered {
    std::string text;
    std::vector<TokenId> tokens;
    int64_t neutralised = 0;  // Prepared
  };
  // Also refuses a model without a chat template.
  absl::Status CheckConversationHere(const v1::Conversation& conversation) const;
  // By bytes alone, whether `text` can be tokens of so many contexts. `field` opens the message.
  absl::Status CheckLength(const char* field, std::string_view text, int64_t contexts) const;
  // `text` without the marks in it (text::LiteralText) and its tokens.
  absl::StatusOr<Rendered> Encode(const char* field, std::string text,
                                  const text::LiteralText::Marked& marked, bool add_special_tokens,
                                  int64_t contexts, const Wanted& wanted) const;
  absl::StatusOr<Rendered> EncodePrompt(const std::string& text, bool literal, int64_t contexts,
                                        const Wanted& wanted) const;
  absl::StatusOr<Rendered> Render(const v1::Conversation& conversation, const Tenant& tenant,
                                  int64_t contexts, const Wanted& wanted) const;
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
