#include "text/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "text/detokenizer.h"
#include "text/gguf_text.h"
#include "text/model_file.h"
#include "text/rust_call.h"
#include "text/tokenizer_impl.h"

namespace baton::text {
namespace {

std::vector<uint32_t> RawIds(std::span<const TokenId> tokens) {
  std::vector<uint32_t> ids;
  ids.reserve(tokens.size());
  for (const TokenId token : tokens) ids.push_back(static_cast<uint32_t>(token.value()));
  return ids;
}

// NOT_FOUND: the folder has no tokenizer.json, but maybe one in another format.
absl::Status NoTokenizer(const std::string& folder) {
  for (const char* other : {"tekken.json", "tokenizer.model", "vocab.json"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::path(folder) / other, ignored)) continue;
    return absl::NotFoundError(absl::StrCat(folder, "/tokenizer.json: no such file, but ", other,
                                            ", which is not read: AutoTokenizer.from_pretrained and "
                                            "save_pretrained of transformers write a tokenizer.json"));
  }
  return absl::NotFoundError(absl::StrCat(folder, "/tokenizer.json: no such file"));
}

}  // namespace

absl::StatusOr<std::string> Tokenizer::Impl::Decode(std::span<const uint32_t> ids, bool keep_special) const {
  baton_text_bytes text;
  baton_text_bytes error;
  const int32_t code =
      CallRust(baton_tokenizer_decode, handle, ids.data(), ids.size(), keep_special, &text, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  return Take(text);
}

void Tokenizer::Impl::MeasureTokens(bool verbatim) {
  uint32_t most = 1;
  for (size_t id = 0; id < ends.size(); ++id) {
    const std::string_view token = BytesOf(TokenId(static_cast<int32_t>(id)));
    const auto size = static_cast<uint32_t>(token.size());
    most = std::max(most, size);
    for (const char c : token) {
      uint32_t& best = longest[static_cast<uint8_t>(c)];
      best = std::max(best, size);
    }
  }
  // Unicode's composition, the normalizer that models have, makes one byte of at most three.
  constexpr uint32_t kShortened = 3;
  if (!verbatim) longest.fill(kShortened * most);
  for (uint32_t& length : longest) {
    if (length == 0) length = most;  // no token has this byte: an unknown token replaces it
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& folder) {
  BATON_ASSIGN_OR_RETURN(const auto file, gguf::OpenIfGguf(folder));
  const std::string path = file.has_value() ? folder : absl::StrCat(folder, "/tokenizer.json");
  std::string json, config;
  if (file.has_value()) {
    BATON_ASSIGN_OR_RETURN(json, TokenizerOfGguf(file->document));
  } else {
    absl::StatusOr<std::string> content = ReadModelFile(path);
    if (absl::IsNotFound(content.status())) return NoTokenizer(folder);
    BATON_ASSIGN_OR_RETURN(json, std::move(content));
    content = ReadModelFile(absl::StrCat(folder, "/tokenizer_config.json"));
    if (!absl::IsNotFound(content.status())) {
      BATON_ASSIGN_OR_RETURN(config, std::move(content));
    }
  }
  auto tokenizer = FromJson(json, config);
  if (!tokenizer.ok()) return InFile(path, tokenizer.status());
  return tokenizer;
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view json,
                                                                     std::string_view config) {
  auto impl = std::make_unique<Impl>();
  baton_text_bytes error;
  if (int32_t code = CallRust(baton_tokenizer_new, Data(json), json.size(), Data(config), config.size(),
                              &impl->handle, &error);
      code != BATON_TEXT_OK) {
    return TakeError(code, error);
  }
  baton_text_vocabulary table;
  if (int32_t code = CallRust(baton_tokenizer_vocabulary, impl->handle, &table, &error);
      code != BATON_TEXT_OK) {
    return TakeError(code, error);
  }
  impl->bytes = Take(table.bytes);
  impl->flags = Take(table.flags);
  impl->ends.assign(table.ends.data, table.ends.data + table.ends.size);
  CallRust(baton_text_ids_free, table.ends);
  impl->join = static_cast<baton_text_join>(table.join);
  impl->strip_spaces = table.strip_spaces;
  impl->MeasureTokens(table.verbatim != 0);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, bool add_special_tokens,
                                                       const EncodeBounds& bounds) const {
  return EncodeMarked(text, add_special_tokens, /*mark=*/0, bounds);
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::EncodeMarked(std::string_view text, bool add_special_tokens,
                                                             char32_t mark,
                                                             const EncodeBounds& bounds) const {
  baton_text_ids ids;
  baton_text_bytes error;
  const auto wanted = [](const void* asked) -> int32_t {
    return (*static_cast<const std::function<bool()>*>(asked))() ? 1 : 0;
  };
  int32_t (*const ask)(const void*) = bounds.wanted ? +wanted : nullptr;
  const int32_t code = CallRust(baton_tokenizer_encode, impl_->handle, Data(text), text.size(),
                                add_special_tokens, static_cast<uint32_t>(mark),
                                static_cast<size_t>(bounds.max_tokens), ask, &bounds.wanted, &ids, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size);
  for (size_t i = 0; i < ids.size; ++i) tokens.emplace_back(static_cast<int32_t>(ids.data[i]));
  CallRust(baton_text_ids_free, ids);
  return tokens;
}

absl::StatusOr<Tokenizer::Controls> Tokenizer::FindControls(std::string_view text,
                                                            std::span<const TokenId> kept) const {
  const std::vector<uint32_t> ids = RawIds(kept);
  baton_text_controls found;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_tokenizer_find_controls, impl_->handle, Data(text), text.size(),
                                ids.data(), ids.size(), &found, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  return Controls{.tokens = static_cast<int64_t>(found.tokens), .marks = static_cast<int64_t>(found.marks)};
}

absl::StatusOr<std::string> Tokenizer::MarkControls(std::string_view text, std::span<const TokenId> kept,
                                                    char32_t mark) const {
  const std::vector<uint32_t> ids = RawIds(kept);
  baton_text_bytes marked;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_tokenizer_mark_controls, impl_->handle, Data(text), text.size(),
                                ids.data(), ids.size(), static_cast<uint32_t>(mark), &marked, &error);
  if (code != BATON_TEXT_OK) return TakeError(code, error);
  return Take(marked);
}

int64_t Tokenizer::LeastTokens(std::string_view text) const {
  std::array<int64_t, 256> count = {};
  for (const char c : text) ++count[static_cast<uint8_t>(c)];
  double tokens = 0;
  for (size_t byte = 0; byte < count.size(); ++byte) {
    tokens += static_cast<double>(count[byte]) / impl_->longest[byte];
  }
  return static_cast<int64_t>(std::ceil(tokens - 1e-6));  // less what rounding may have added
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const TokenId> tokens, bool keep_special) const {
  for (const TokenId token : tokens) {
    if (token.value() < 0 || token.value() >= vocabulary()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", token.value(), " is outside the tokenizer's vocabulary of ", vocabulary()));
    }
  }
  if (impl_->join == BATON_TEXT_JOIN_OPAQUE) {
    return impl_->Decode(RawIds(tokens), keep_special);
  }
  // The detokenizer only borrows *this for the length of the call.
  Detokenizer detokenizer(std::shared_ptr<const Tokenizer>(std::shared_ptr<const Tokenizer>(), this),
                          keep_special);
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.Push(token);
  text += detokenizer.Flush();
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId token) const { return impl_->BytesOf(token); }
bool Tokenizer::IsSpecial(TokenId token) const { return impl_->IsSpecial(token); }
bool Tokenizer::IsControl(TokenId token) const { return impl_->IsControl(token); }
int64_t Tokenizer::vocabulary() const { return static_cast<int64_t>(impl_->ends.size()); }

}  // namespace baton::text
