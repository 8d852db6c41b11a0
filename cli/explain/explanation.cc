#include "cli/explain/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "cli/show/quantity.h"
#include "common/base/ids.h"
#include "text/utf8.h"

namespace baton::cli {
namespace {

constexpr int kPieceColumns = 16;
constexpr int kShareCells = 16;

// C1 controls are commands to some terminals; marks and overrides of direction, and separators of lines and
// paragraphs (U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069), move what stands beside them. UTF-8.
bool HasControls(std::string_view text) {
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto at = [&](size_t place) { return static_cast<uint8_t>(text[place]); };
    if (at(i) == 0xC2 && at(i + 1) < 0xA0) return true;
    if (at(i) != 0xE2 || i + 2 >= text.size()) continue;
    const uint8_t last = at(i + 2);
    if (at(i + 1) == 0x80 && (last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE))) return true;
    if (at(i + 1) == 0x81 && last >= 0xA6 && last <= 0xA9) return true;
  }
  return false;
}

// Every character that is not a continuation of one counts.
int ColumnsOf(std::string_view text) {
  return static_cast<int>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string Padded(std::string text, int columns) {
  const int missing = columns - ColumnsOf(text);
  if (missing > 0) text.append(static_cast<size_t>(missing), ' ');
  return text;
}

// "word" 123 "word" 124, in as many lines as the terminal needs. Neighbours differ in colour.
std::string Tokens(std::string_view label, std::span<const PromptToken> tokens, const Terminal& terminal) {
  constexpr int kIndent = 12;
  const int width = std::max(terminal.width, 40);
  std::string out = "  " + Paint(terminal, Style::kBold, fmt::format("{:<10}", label));
  int column = kIndent;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string piece = ShowPiece(tokens[i].bytes, terminal), id = std::to_string(tokens[i].id);
    const int columns = ColumnsOf(piece) + 1 + static_cast<int>(id.size());
    if (column > kIndent && column + 2 + columns > width) {
      out += fmt::format("\n{:{}}", "", kIndent);
      column = kIndent;
    }
    if (column > kIndent) {
      out += "  ";
      column += 2;
    }
    out += Paint(terminal, i % 2 == 0 ? Style::kCyan : Style::kYellow, piece) + " " +
           Paint(terminal, Style::kDim, id);
    column += columns;
  }
  return out + "\n";
}

std::string Percent(float share) {
  if (share > 0 && share < 0.0001f) return "<0.01%";
  return fmt::format("{:.2f}%", 100 * static_cast<double>(share));
}

std::string_view HowWord(v1::SamplingTrace::How how) {
  switch (how) {
    case v1::SamplingTrace::HOW_DRAWN:
      return "drawn";
    case v1::SamplingTrace::HOW_GREEDY:
      return "the likeliest";
    case v1::SamplingTrace::HOW_FORCED:
      return "written for the model";
    default:
      return "chosen in a way that this command does not know";
  }
}

// The step that dropped the token at this place of the list, which is in the order that the filters cut; ""
// if none did.
std::string_view DroppedBy(const v1::SamplingTrace& trace, uint32_t place) {
  if (place >= trace.after_temperature()) return "temperature";
  if (place >= trace.after_top_k()) return "top-k";
  if (place >= trace.after_top_p()) return "top-p";
  return place >= trace.after_min_p() ? "min-p" : "";
}

}  // namespace

std::string ShowPiece(std::string_view bytes, const Terminal& terminal) {
  const bool shown = terminal.utf8 && text::IsUtf8(bytes) && !HasControls(bytes);
  const absl::string_view view(bytes.data(), bytes.size());
  // These escapes are made for C, where an apostrophe needs one, too.
  const std::string escaped = shown ? absl::Utf8SafeCEscape(view) : absl::CHexEscape(view);
  return fmt::format("\"{}\"", absl::StrReplaceAll(escaped, {{"\\'", "'"}}));
}

std::string RenderPrompt(std::span<const PromptToken> tokens, int64_t cached, const Terminal& terminal) {
  const auto first = static_cast<size_t>(std::clamp<int64_t>(cached, 0, std::ssize(tokens)));
  std::string out =
      fmt::format("The prompt has {} tokens. The KV of {} was cached, that of {} was computed.\n",
                  ShowCount(std::ssize(tokens)), ShowCount(static_cast<int64_t>(first)),
                  ShowCount(static_cast<int64_t>(tokens.size() - first)));
  if (first > 0) out += Tokens("cached", tokens.first(first), terminal);
  if (first < tokens.size()) out += Tokens("computed", tokens.subspan(first), terminal);
  return out;
}

std::string RenderKv(const v1::Finished& finished, const Terminal& terminal) {
  const v1::Relay& relay = finished.relay();
  if (relay.shipped_blocks() == 0) return "";
  const v1::Usage& usage = finished.usage();
  const int64_t per_token =
      static_cast<int64_t>(relay.shipped_bytes()) / (relay.shipped_blocks() * kBlockTokens);
  const int64_t written = std::max<int64_t>(0, int64_t{usage.prompt_tokens()} - usage.cached_tokens());
  return fmt::format("  {}{} tokens x {} bytes = {} of KV written\n",
                     Paint(terminal, Style::kBold, fmt::format("{:<12}", "KV")), ShowCount(written),
                     ShowCount(per_token), ShowBytes(written * per_token));
}

std::string RenderTrace(int64_t number, const v1::SamplingTrace& trace, const Terminal& terminal) {
  const auto chosen = std::ranges::find(trace.likeliest(), trace.token_id(), &v1::TokenTrace::token_id);
  const std::string piece = chosen == trace.likeliest().end() ? "" : ShowPiece(chosen->bytes(), terminal);
  std::string out = fmt::format("\nToken {}: {} {}, {}", number, Paint(terminal, Style::kGreen, piece),
                                trace.token_id(), HowWord(trace.how()));
  if (trace.has_uniform()) out += fmt::format(" with the random number {:.6f}", trace.uniform());
  out += "\n";

  const std::array<std::pair<std::string_view, uint32_t>, 6> steps = {
      {{"vocabulary", trace.vocabulary()},
       {"constraint", trace.after_constraint()},
       {"temperature", trace.after_temperature()},
       {"top-k", trace.after_top_k()},
       {"top-p", trace.after_top_p()},
       {"min-p", trace.after_min_p()}}};
  uint32_t before = 0;
  for (const auto& [name, left] : steps) {
    const bool begins = name == "vocabulary";
    const std::string dropped =
        begins || left == before ? "" : fmt::format("  {} dropped", ShowCount(int64_t{before} - left));
    before = left;
    // A step that nothing was asked of is not worth a line.
    if (!begins && dropped.empty() && name == "constraint") continue;
    out += fmt::format("  {:<12}{:>9} left{}\n", name, ShowCount(left), dropped);
  }

  out += Paint(terminal, Style::kBold,
               fmt::format("    {:<{}}{:>8}{:>9}{:>10}{:>9}{:>10}{:>9}", "token", kPieceColumns, "id",
                           "logit", "adjusted", "before", "tempered", "drawn")) +
         "\n";
  for (int i = 0; i < trace.likeliest_size(); ++i) {
    const v1::TokenTrace& token = trace.likeliest(i);
    const bool is_chosen = token.token_id() == trace.token_id();
    std::string line = fmt::format(
        "{}{:>8}{:>9.3f}{:>10.3f}{:>9}{:>10}",
        Padded(FirstColumns(ShowPiece(token.bytes(), terminal), kPieceColumns - 1), kPieceColumns),
        token.token_id(), token.logit(), token.adjusted_logit(), Percent(token.probability()),
        Percent(token.tempered_probability()));
    if (token.drawn_probability() > 0) {
      const int cells = std::max(1, static_cast<int>(std::lround(token.drawn_probability() * kShareCells)));
      line += fmt::format("{:>9}  ", Percent(token.drawn_probability()));
      for (int cell = 0; cell < cells; ++cell) line += terminal.utf8 ? "█" : "#";
    } else {
      // No filter stands between a token and its being forced.
      const bool forced = is_chosen && trace.how() == v1::SamplingTrace::HOW_FORCED;
      line += fmt::format("{:>9}  {}", "-", forced ? "" : DroppedBy(trace, static_cast<uint32_t>(i)));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += is_chosen ? "  > " + Paint(terminal, Style::kGreen, line) + "\n" : "    " + line + "\n";
  }
  return out;
}

}  // namespace baton::cli
