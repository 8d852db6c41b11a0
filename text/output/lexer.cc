#include "text/output/lexer.h"

#include <algorithm>

namespace baton::output {
namespace {

void AddText(std::string_view text, std::vector<Lexeme>* out) {
  if (text.empty()) return;
  if (!out->empty() && !out->back().marker) {
    out->back().text += text;
  } else {
    out->push_back({.marker = false, .text = std::string(text)});
  }
}

}  // namespace

void Lexer::Push(TokenId token, std::string_view text, std::vector<Lexeme>* out) {
  const auto found = std::ranges::find(markers_.by_id(), token, &std::pair<TokenId, std::string>::first);
  if (found == markers_.by_id().end()) {
    Scan(text, out);
    return;
  }
  // The detokenizer may have completed earlier text with this token; special tokens have no text there.
  if (text.ends_with(found->second)) text.remove_suffix(found->second.size());
  Finish(text, out);
  out->push_back({.marker = true, .text = found->second});
}

void Lexer::Finish(std::string_view text, std::vector<Lexeme>* out) {
  Scan(text, out);
  AddText(held_, out);
  held_.clear();
}

void Lexer::Scan(std::string_view text, std::vector<Lexeme>* out) {
  const std::vector<std::string>& spelled = markers_.by_text();
  if (spelled.empty()) {
    AddText(text, out);
    return;
  }
  held_ += text;
  const std::string_view all = held_;
  size_t done = 0, at = 0;
  while (at < all.size()) {
    const std::string_view rest = all.substr(at);
    const auto whole = std::ranges::find_if(spelled, [&](const auto& m) { return rest.starts_with(m); });
    if (whole != spelled.end()) {
      AddText(all.substr(done, at - done), out);
      out->push_back({.marker = true, .text = *whole});
      at += whole->size();
      done = at;
      continue;
    }
    if (std::ranges::any_of(spelled, [&](const std::string& m) { return m.starts_with(rest); })) break;
    ++at;
  }
  AddText(all.substr(done, at - done), out);
  held_.erase(0, at);
}

}  // namespace baton::output
