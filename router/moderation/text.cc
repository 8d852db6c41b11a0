#include "router/moderation/text.h"

namespace baton::router::moderation {

std::string TextOf(const v1::Delta& delta) {
  std::string text;
  bool has_text = false;
  for (const v1::PartEvent& event : delta.parts()) {
    if (event.has_start() && !event.start().name().empty()) text += event.start().name() + "\n";
    has_text = has_text || !event.text().empty();
    text += event.text();
    text += event.arguments_json();
    if (event.has_end()) text += "\n";
  }
  if (!has_text) text += delta.text();
  return text;
}

size_t CharacterStart(std::string_view text, size_t offset) {
  if (offset >= text.size()) return text.size();
  while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) --offset;
  return offset;
}

std::string_view Tail(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t start = text.size() - bytes;
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  return text.substr(start);
}

}  // namespace baton::router::moderation
