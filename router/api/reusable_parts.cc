#include "router/api/reusable_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status.h"

namespace baton::router {
namespace {

// The borders of the parts of one message, as positions in the prompt.
class Borders {
 public:
  Borders(std::span<const TokenId> prompt, const v1::Conversation& conversation, int message,
          const RenderTokens& render)
      : prompt_(prompt), conversation_(conversation), message_(message), render_(render) {}

  // At byte `offset` of the message's content, which is not before that of the last call. None: not known.
  absl::StatusOr<std::optional<int64_t>> At(size_t offset) {
    if (last_offset_ == offset) return last_;
    std::optional<int64_t> border;
    for (const v1::Conversation& way : ProbesAt(conversation_, message_, offset)) {
      const absl::StatusOr<std::vector<TokenId>> tokens = render_(way);
      if (absl::IsCancelled(tokens.status())) return tokens.status();
      if (!tokens.ok()) continue;
      border = std::ranges::mismatch(prompt_, *tokens).in1 - prompt_.begin();
      break;
    }
    last_offset_ = offset;
    last_ = border;
    return border;
  }

 private:
  const std::span<const TokenId> prompt_;
  const v1::Conversation& conversation_;
  const int message_;
  const RenderTokens& render_;
  size_t last_offset_ = std::string::npos;  // none
  std::optional<int64_t> last_;
};

}  // namespace

absl::Status CheckReusableParts(const v1::Conversation& conversation) {
  int parts = 0;
  for (const v1::Message& message : conversation.messages()) {
    parts += static_cast<int>(
        std::ranges::count_if(message.parts(), [](const v1::ContentPart& part) { return part.reusable(); }));
  }
  if (parts <= kMaxReusableParts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("conversation: {} reusable parts, at most {} are allowed", parts, kMaxReusableParts));
}

absl::StatusOr<std::vector<kv::ReusableSpan>> ReusablePartsOf(std::span<const TokenId> prompt,
                                                              const v1::Conversation& conversation,
                                                              const RenderTokens& render) {
  std::vector<kv::ReusableSpan> spans;
  for (int i = 0; i < conversation.messages_size(); ++i) {
    Borders borders(prompt, conversation, i, render);
    size_t offset = 0;
    for (const v1::ContentPart& part : conversation.messages(i).parts()) {
      const size_t begin = std::exchange(offset, offset + part.text().size());
      if (!part.reusable()) continue;
      BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> from, borders.At(begin));
      BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> to, borders.At(offset));
      if (!from.has_value() || !to.has_value()) continue;
      spans.push_back({*from, *to});
      // Also where a template writes messages in another order.
      if (!kv::CheckReusable(spans, std::ssize(prompt), "").ok()) spans.pop_back();
    }
  }
  return spans;
}

std::vector<kv::ReusableSpan> ReusableSpansOf(const baton::fleet::v1::DecodeRequest& request) {
  std::vector<kv::ReusableSpan> spans;
  spans.reserve(static_cast<size_t>(request.reusable_size()));
  for (const v1::ReusableSpan& span : request.reusable()) spans.push_back({span.begin(), span.end()});
  return spans;
}

}  // namespace baton::router
