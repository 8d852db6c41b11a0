// MarkerTable: which of a format's markers are one token of a tokenizer, and which are spelled. Asking the
// tokenizer takes some ten encodings, so it is done once for each format at load. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "text/output/output_format.h"
#include "text/tokenizer.h"

namespace baton::output {

class MarkerTable {
 public:
  // The tokenizer is used only here.
  MarkerTable(const OutputFormat& format, const text::Tokenizer& tokenizer);

  const OutputFormat& format() const { return *format_; }
  const std::vector<std::pair<TokenId, std::string>>& by_id() const { return by_id_; }
  // The token that is this marker; nothing if it is spelled, or none of the format's.
  std::optional<TokenId> IdOf(std::string_view marker) const;
  const std::vector<std::string>& by_text() const { return by_text_; }
  // Tokens that end thinking if a budget does (OutputFormat::think_cut); empty: the format has no thinking.
  const std::vector<TokenId>& think_cut() const { return think_cut_; }

 private:
  const OutputFormat* format_;
  std::vector<std::pair<TokenId, std::string>> by_id_;
  std::vector<std::string> by_text_;
  std::vector<TokenId> think_cut_;
};

// The tables of all formats with one tokenizer.
class MarkerTables {
 public:
  explicit MarkerTables(const text::Tokenizer& tokenizer);

  // Null: no such format. Lives as long as this.
  const MarkerTable* Find(std::string_view format) const;

 private:
  std::vector<MarkerTable> tables_;
};

}  // namespace baton::output
