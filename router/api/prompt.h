// Prompts: the text and the tokens that a model gets of a client's text or conversation, cut where they are
// too long and the request's overflow says what may go. The cost is bounded by the model's context before it
// is spent: a text that can't fit is refused by its bytes, a conversation by the number of its parts. Pure
// functions, any thread; they belong on the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/base/ids.h"
#include "router/api/served_model.h"
#include "router/tenancy/tenants.h"

namespace baton::router {

// Tokens that are counted at most, in contexts of the model: as many as it takes to say by how much a prompt
// is too long.
inline constexpr int64_t kMaxContexts = 4;
// Bytes of text per token of the context that are looked at. Prose has 4 to 5, and what has more in the mean
// of a whole context is no text; a few tokens, such as runs of spaces, have up to 128.
inline constexpr int64_t kMaxBytesPerToken = 16;

// The call still waits for the result; asked between the steps of the work and during the long ones, which
// end with CANCELLED once it says false. Null: always.
using Wanted = std::function<bool()>;

struct Rendered {
  std::string text;
  std::vector<TokenId> tokens;
  int64_t neutralised = 0;  // Prepared
};

// Contexts that a prompt may be long before it is cut.
int64_t MostContexts(const v1::Overflow& overflow, bool counted);

// By bytes alone: `text` can be tokens of so many contexts. `field` opens the message of an error.
absl::Status CheckLength(const ServedModel& model, const char* field, std::string_view text,
                         int64_t contexts);

// A text's tokens. literal: GenerateRequest's.
absl::StatusOr<Rendered> EncodePrompt(const ServedModel& model, const std::string& text, bool literal,
                                      int64_t contexts, const Wanted& wanted);
// A conversation's, as the model's template writes it.
absl::StatusOr<Rendered> Render(const ServedModel& model, const v1::Conversation& conversation,
                                const v1::Thinking& thinking, const Tenant& tenant, int64_t contexts,
                                const Wanted& wanted);

struct Fitted {
  Rendered rendered;
  v1::ContextReport report;
  // The conversation that was rendered, if it is not the request's.
  std::optional<v1::Conversation> conversation;

  bool shortened() const { return conversation.has_value() || report.removed_tokens() > 0; }
};
// The prompt of a request, made to fit if its overflow says so. counted: nobody computes it, so it may have
// kMaxContexts, and be too long all the same.
absl::StatusOr<Fitted> FitPrompt(const ServedModel& model, const v1::GenerateRequest& request,
                                 const Tenant& tenant, bool counted, const Wanted& wanted);
absl::StatusOr<Fitted> FitPrompt(const ServedModel& model, const v1::ChatRequest& request,
                                 const Tenant& tenant, bool counted, const Wanted& wanted);

}  // namespace baton::router
