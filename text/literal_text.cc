#include "text/literal_text.h"

#include <bitset>
#include <charconv>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "text/rust_call.h"

namespace baton::text {
namespace {

using Json = ChatTemplate::Json;
using Kept = std::span<const TokenId>;

// Calls `visit` with every text below `value`, names of members included, and what is kept in it. Recursion
// is as deep as the reader of the JSON allows.
template <typename Visit>
absl::Status EachText(const Json& value, Kept kept, Visit& visit) {
  if (value.is_string()) return visit(value.get_ref<const std::string&>(), kept);
  if (value.is_array()) {
    for (const Json& item : value) BATON_RETURN_IF_ERROR(EachText(item, kept, visit));
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      BATON_RETURN_IF_ERROR(visit(name, {}));
      BATON_RETURN_IF_ERROR(EachText(member, kept, visit));
    }
  }
  return absl::OkStatus();
}

// Replaces each of these texts.
template <typename Replace>
absl::Status ReplaceTexts(Json* value, Kept kept, Replace& replace) {
  if (value->is_string()) return replace(value->get_ptr<std::string*>(), kept);
  if (value->is_array()) {
    for (Json& item : *value) BATON_RETURN_IF_ERROR(ReplaceTexts(&item, kept, replace));
  }
  if (value->is_object()) {
    Json replaced = Json::object();
    for (auto& [name, member] : value->items()) {
      std::string other = name;
      BATON_RETURN_IF_ERROR(replace(&other, {}));
      BATON_RETURN_IF_ERROR(ReplaceTexts(&member, kept, replace));
      json::Append(&replaced, other, std::move(member));
    }
    *value = std::move(replaced);
  }
  return absl::OkStatus();
}

// Does `walk` to each part of the variables that clients write, with what is kept there.
template <typename Variables, typename Walk>
absl::Status EachPart(Variables& variables, Kept kept_in_answers, Walk walk) {
  for (auto& [name, value] : variables.items()) {
    if (name != "messages" || !value.is_array()) {
      BATON_RETURN_IF_ERROR(walk(value, Kept()));
      continue;
    }
    for (auto& message : value) {
      if (!message.is_object()) continue;
      const bool answer = message.contains("role") && message["role"] == "assistant";
      for (auto& [field, part] : message.items()) {
        BATON_RETURN_IF_ERROR(walk(part, answer && field == "content" ? kept_in_answers : Kept()));
      }
    }
  }
  return absl::OkStatus();
}

// Characters for private use, U+E000 to U+F8FF: three bytes each, the same whatever a template does to a
// text.
constexpr char32_t kFirstMark = 0xE000;
constexpr size_t kMarks = 0xF8FF - kFirstMark + 1;

// Marks that occur in texts, as characters or as JSON escapes.
class UsedMarks {
 public:
  void Add(std::string_view text) {
    for (size_t i = 0; i + 2 < text.size(); ++i) {
      const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
      if (byte(i) >= 0xEE) {
        Set(static_cast<char32_t>((byte(i) & 0xF) << 12 | (byte(i + 1) & 0x3F) << 6 | (byte(i + 2) & 0x3F)));
      } else if (text[i] == '\\' && text[i + 1] == 'u') {
        uint32_t code = 0;
        const std::string_view digits = text.substr(i + 2, 4);
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        Set(code);
      }
    }
  }
  // 0: none is left.
  char32_t Unused() const {
    for (size_t i = 0; i < kMarks; ++i) {
      if (!used_[i]) return kFirstMark + static_cast<char32_t>(i);
    }
    return 0;
  }

 private:
  void Set(char32_t code) {
    if (code >= kFirstMark && code < kFirstMark + kMarks) used_[code - kFirstMark] = true;
  }
  std::bitset<kMarks> used_;
};

absl::Status NoMark() {
  return absl::InvalidArgumentError(
      "every character for private use occurs in the text, so none is left to mark control tokens with");
}

}  // namespace

LiteralText::LiteralText(std::shared_ptr<const Tokenizer> tokenizer, const ChatTemplate* chat_template)
    : tokenizer_(std::move(tokenizer)) {
  if (chat_template == nullptr) return;
  // Templates differ in what they accept: some raise at a system message, others without tools.
  const Json user = {{"role", "user"}, {"content", "a"}};
  const Json assistant = {{"role", "assistant"}, {"content", "b"}};
  const Json system = {{"role", "system"}, {"content", "c"}};
  const Json tool = {{"role", "tool"}, {"content", "d"}};
  bool rendered = false;
  absl::flat_hash_set<int32_t> of_turns;
  for (const Json& messages : {Json{user, assistant, user}, Json{system, user, assistant, user},
                               Json{user, assistant, user, assistant}, Json{user, assistant, tool}}) {
    const auto text = chat_template->Render({{"messages", messages}});
    if (!text.ok()) continue;
    const auto tokens = tokenizer_->Encode(*text, /*add_special_tokens=*/false);
    if (!tokens.ok()) continue;
    rendered = true;
    for (const TokenId token : *tokens) of_turns.insert(token.value());
  }
  if (!rendered) return;  // what makes a turn is not known
  for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id) {
    const TokenId token(id);
    if (tokenizer_->IsControl(token) && !tokenizer_->IsSpecial(token) && !of_turns.contains(id)) {
      kept_.push_back(token);
    }
  }
}

absl::StatusOr<LiteralText::Marked> LiteralText::Mark(Json* variables) const {
  Marked marked;
  const auto find = [&](const std::string& text, Kept kept) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(const Tokenizer::Controls found, tokenizer_->FindControls(text, kept));
    marked.tokens += found.tokens;
    marked.marks += found.marks;
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(EachPart(std::as_const(*variables), kept_,
                                 [&](const Json& part, Kept kept) { return EachText(part, kept, find); }));
  if (marked.marks == 0) return marked;

  UsedMarks used;
  const auto add = [&](const std::string& text, Kept) {
    used.Add(text);
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(EachText(*variables, Kept(), add));
  marked.mark = used.Unused();
  if (marked.mark == 0) return NoMark();
  const auto replace = [&](std::string* text, Kept kept) -> absl::Status {
    BATON_ASSIGN_OR_RETURN(*text, tokenizer_->MarkControls(*text, kept, marked.mark));
    return absl::OkStatus();
  };
  BATON_RETURN_IF_ERROR(
      EachPart(*variables, kept_, [&](Json& part, Kept kept) { return ReplaceTexts(&part, kept, replace); }));
  return marked;
}

absl::StatusOr<LiteralText::Marked> LiteralText::Mark(std::string* text) const {
  BATON_ASSIGN_OR_RETURN(const Tokenizer::Controls found, tokenizer_->FindControls(*text));
  Marked marked{.tokens = found.tokens, .marks = found.marks};
  if (marked.marks == 0) return marked;
  UsedMarks used;
  used.Add(*text);
  marked.mark = used.Unused();
  if (marked.mark == 0) return NoMark();
  BATON_ASSIGN_OR_RETURN(*text, tokenizer_->MarkControls(*text, {}, marked.mark));
  return marked;
}

std::string LiteralText::Unmark(std::string_view text, char32_t mark) {
  baton_text_bytes plain;
  baton_text_bytes error;
  const int32_t code =
      CallRust(baton_text_unmark, Data(text), text.size(), static_cast<uint32_t>(mark), &plain, &error);
  if (code == BATON_TEXT_OK) return Take(plain);
  TakeError(code, error).IgnoreError();  // no UTF-8, so nothing that was marked
  return std::string(text);
}

}  // namespace baton::text
