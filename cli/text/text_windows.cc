#include "cli/text/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/base/status.h"
#include "text/tokenizer.h"

namespace baton::cli {
namespace {

// Bytes of a text that are read for each token of it: more than the longest tokens of a vocabulary take.
constexpr int64_t kBytesPerToken = 64;
constexpr int64_t kLeastTokens = 64;

// The special tokens that go before a text.
absl::StatusOr<std::vector<TokenId>> PrefixOf(const text::Tokenizer& tokenizer) {
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> bare,
                         tokenizer.Encode("a", /*add_special_tokens=*/false));
  BATON_ASSIGN_OR_RETURN(std::vector<TokenId> whole, tokenizer.Encode("a", /*add_special_tokens=*/true));
  whole.erase(std::ranges::search(whole, bare).begin(), whole.end());
  return whole;
}

// So many bytes of a file at most, without a last character that is cut.
absl::StatusOr<std::string> BeginningOf(const std::string& path, int64_t most) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::string text(static_cast<size_t>(error ? 0 : std::min(size, most)), '\0');
  std::ifstream file(path, std::ios::binary);
  if (error || !file.read(text.data(), std::ssize(text))) {
    return absl::NotFoundError(path + ": can't be read");
  }
  if (size <= most) return text;
  const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
  while (!text.empty() && continues(text.back())) text.pop_back();
  if (!text.empty() && (static_cast<uint8_t>(text.back()) & 0x80) != 0) text.pop_back();
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<TokenId>>> ReadWindows(const std::string& model_folder,
                                                              const std::string& path, int64_t window,
                                                              int64_t most) {
  BATON_ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::Load(model_folder));
  BATON_ASSIGN_OR_RETURN(const std::string text, BeginningOf(path, most * kBytesPerToken));
  const auto encoded = tokenizer->Encode(text, /*add_special_tokens=*/false);
  if (!encoded.ok()) {
    return absl::Status(encoded.status().code(),
                        fmt::format("{}: {}", path, std::string(encoded.status().message())));
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> prefix, PrefixOf(*tokenizer));
  const int64_t tokens = std::min(std::ssize(*encoded), most);
  if (tokens < kLeastTokens) {
    return absl::InvalidArgumentError(
        fmt::format("{}: has {} tokens: it takes at least {}", path, tokens, kLeastTokens));
  }
  const int64_t each = window - std::ssize(prefix);
  if (const int64_t least = std::max<int64_t>(2, std::ssize(prefix) + 1); window < least) {
    return absl::InvalidArgumentError(fmt::format(
        "windows of {} tokens compare nothing, as the tokenizer puts {} before a text: use a --window of {} "
        "at least, and a model whose context is as long",
        window, prefix.size(), least));
  }
  std::vector<std::vector<TokenId>> windows;
  for (int64_t first = 0; first < tokens; first += each) {
    std::vector<TokenId> made = prefix;
    made.insert(made.end(), encoded->begin() + first, encoded->begin() + std::min(tokens, first + each));
    if (made.size() >= 2) windows.push_back(std::move(made));
  }
  return windows;
}

}  // namespace baton::cli
