#include "text/output/marker_table.h"

#include <algorithm>

namespace baton::output {

MarkerTable::MarkerTable(const OutputFormat& format, const text::Tokenizer& tokenizer) : format_(&format) {
  for (const std::string_view marker : Markers(format)) {
    const auto tokens = tokenizer.Encode(marker, /*add_special_tokens=*/false);
    if (tokens.ok() && tokens->size() == 1 && tokenizer.IsControl(tokens->front())) {
      by_id_.emplace_back(tokens->front(), marker);
    } else {
      by_text_.emplace_back(marker);
    }
  }
  if (format.think_cut.empty()) return;
  const auto cut = tokenizer.Encode(format.think_cut, /*add_special_tokens=*/false);
  if (cut.ok()) think_cut_ = *cut;
}

std::optional<TokenId> MarkerTable::IdOf(std::string_view marker) const {
  for (const auto& [id, text] : by_id_) {
    if (text == marker) return id;
  }
  return std::nullopt;
}

MarkerTables::MarkerTables(const text::Tokenizer& tokenizer) {
  for (const OutputFormat& format : Formats()) tables_.emplace_back(format, tokenizer);
}

const MarkerTable* MarkerTables::Find(std::string_view format) const {
  const auto found =
      std::ranges::find(tables_, format, [](const MarkerTable& table) { return table.format().name; });
  return found == tables_.end() ? nullptr : &*found;
}

}  // namespace baton::output
