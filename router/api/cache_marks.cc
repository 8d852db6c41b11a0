#include "router/api/cache_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "router/api/conversation.h"
#include "router/api/validation.h"

namespace baton::router {
namespace {

absl::Status CheckMark(const v1::CacheMark& mark, const std::string& field) {
  if (v1::CacheTtl_IsValid(mark.ttl())) return absl::OkStatus();
  return NoValueOf(*v1::CacheTtl_descriptor(), field + ".ttl", mark.ttl());
}

v1::CacheTtl TtlOf(const v1::CacheMark& mark) {
  return mark.ttl() == v1::CACHE_TTL_1H ? v1::CACHE_TTL_1H : v1::CACHE_TTL_5M;
}

// Text that does not begin as `other` does.
std::string OtherThan(std::string_view other) { return other.starts_with("Q") ? "7, then?" : "Q?"; }

void Add(v1::Conversation& conversation, const char* role, const std::string& content) {
  v1::Message* const message = conversation.add_messages();
  message->set_role(role);
  message->set_content(content);
}

// Goes on behind the last message of `begun` otherwise than with `text`. The last turn is a user's: templates
// may write answers before it otherwise than those behind it.
std::vector<v1::Conversation> GoOn(v1::Conversation begun, std::string_view text) {
  const std::string other = OtherThan(text);
  std::vector<v1::Conversation> ways(2, std::move(begun));
  Add(ways[0], "assistant", other);
  Add(ways[0], "user", other);
  Add(ways[1], "user", other);
  const std::string& role = ways[0].messages(ways[0].messages_size() - 3).role();
  if (role != "user" && role != "tool") std::swap(ways[0], ways[1]);
  return ways;
}

v1::Conversation UpTo(const v1::Conversation& conversation, int messages) {
  v1::Conversation begun = conversation;
  begun.clear_continue_last();
  begun.mutable_messages()->DeleteSubrange(messages, begun.messages_size() - messages);
  return begun;
}

std::string ContentAt(const v1::Conversation& conversation, int message) {
  return message < conversation.messages_size() ? ContentOf(conversation.messages(message)) : std::string();
}

int64_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

// Tokens that marks cover. All leases begin at the start of the prompt, so the longest of a class covers the
// others.
class Coverage {
 public:
  void Add(v1::CacheTtl ttl, int64_t tokens) {
    int64_t& covered = ttl == v1::CACHE_TTL_1H ? hour_ : minutes_;
    covered = std::max(covered, tokens / kBlockTokens * kBlockTokens);
  }

  std::vector<baton::fleet::v1::CacheLease> Leases() const {
    std::vector<baton::fleet::v1::CacheLease> leases;
    const auto add = [&leases](v1::CacheTtl ttl, int64_t tokens) {
      baton::fleet::v1::CacheLease& lease = leases.emplace_back();
      lease.set_ttl(ttl);
      lease.set_tokens(static_cast<uint32_t>(tokens));
    };
    if (hour_ > 0) add(v1::CACHE_TTL_1H, hour_);
    if (minutes_ > hour_) add(v1::CACHE_TTL_5M, minutes_);
    return leases;
  }

 private:
  int64_t minutes_ = 0, hour_ = 0;  // tokens, of 5 minutes and of one hour
};

}  // namespace

absl::Status CheckCacheMarks(const v1::RequestOptions& options) {
  return options.has_cache() ? CheckMark(options.cache(), "options.cache") : absl::OkStatus();
}

absl::Status CheckCacheMarks(const v1::Conversation& conversation, const v1::RequestOptions& options) {
  BATON_RETURN_IF_ERROR(CheckCacheMarks(options));
  int marks = options.has_cache() ? 1 : 0;
  if (conversation.has_tools_cache()) {
    BATON_RETURN_IF_ERROR(CheckMark(conversation.tools_cache(), "conversation.tools_cache"));
    ++marks;
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::Message& message = conversation.messages(i);
    const auto field = [i] { return fmt::format("conversation.messages[{}]", i); };
    if (!message.content().empty() && !message.parts().empty()) {
      return absl::InvalidArgumentError(field() + ": has both content and parts; set one of them");
    }
    if (message.has_cache()) {
      BATON_RETURN_IF_ERROR(CheckMark(message.cache(), field() + ".cache"));
      ++marks;
    }
    for (int j = 0; j < message.parts_size(); ++j) {
      if (!message.parts(j).has_cache()) continue;
      BATON_RETURN_IF_ERROR(
          CheckMark(message.parts(j).cache(), fmt::format("{}.parts[{}].cache", field(), j)));
      ++marks;
    }
  }
  if (marks <= kMaxCacheMarks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("conversation: {} cache marks, those of options included; at most {} are allowed", marks,
                  kMaxCacheMarks));
}

std::vector<v1::Conversation> ProbesAt(const v1::Conversation& conversation, int message, size_t offset) {
  v1::Conversation begun = UpTo(conversation, message + 1);
  v1::Message* const cut = begun.mutable_messages(message);
  const std::string content = ContentOf(*cut);
  cut->clear_parts();
  cut->set_content(content.substr(0, offset) + OtherThan(std::string_view(content).substr(offset)));
  cut->clear_tool_calls();  // they come behind the content
  return GoOn(std::move(begun), ContentAt(conversation, message + 1));
}

std::vector<MarkProbe> MarkProbes(const v1::Conversation& conversation) {
  std::vector<MarkProbe> probes;
  if (conversation.has_tools_cache()) {
    int frame = 0;
    while (frame < conversation.messages_size() && IsSystem(conversation.messages(frame))) ++frame;
    v1::Conversation probe = UpTo(conversation, frame);
    Add(probe, "user", OtherThan(ContentAt(conversation, frame)));
    probes.push_back({.ttl = TtlOf(conversation.tools_cache()), .conversations = {std::move(probe)}});
  }
  for (int i = 0; i < conversation.messages_size(); ++i) {
    const v1::Message& message = conversation.messages(i);
    std::string before;
    for (int j = 0; j < message.parts_size(); ++j) {
      before += message.parts(j).text();
      if (!message.parts(j).has_cache()) continue;
      probes.push_back({.ttl = TtlOf(message.parts(j).cache()),
                        .conversations = ProbesAt(conversation, i, before.size())});
    }
    if (message.has_cache()) {
      probes.push_back({.ttl = TtlOf(message.cache()),
                        .conversations = GoOn(UpTo(conversation, i + 1), ContentAt(conversation, i + 1))});
    }
  }
  return probes;
}

std::vector<baton::fleet::v1::CacheLease> LeasesOf(int64_t prompt_tokens, const v1::RequestOptions& options) {
  Coverage coverage;
  if (options.has_cache()) coverage.Add(TtlOf(options.cache()), prompt_tokens);
  return coverage.Leases();
}

absl::StatusOr<std::vector<baton::fleet::v1::CacheLease>> LeasesOf(std::span<const TokenId> prompt,
                                                                   const v1::Conversation& conversation,
                                                                   const v1::RequestOptions& options,
                                                                   const RenderTokens& render) {
  Coverage coverage;
  if (options.has_cache()) coverage.Add(TtlOf(options.cache()), std::ssize(prompt));
  for (const MarkProbe& probe : MarkProbes(conversation)) {
    for (const v1::Conversation& way : probe.conversations) {
      const absl::StatusOr<std::vector<TokenId>> tokens = render(way);
      if (absl::IsCancelled(tokens.status())) return tokens.status();
      if (!tokens.ok()) continue;
      coverage.Add(probe.ttl, CommonTokens(prompt, *tokens));
      break;
    }
  }
  return coverage.Leases();
}

}  // namespace baton::router
