#include "text/config/end_tokens.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "common/base/status.h"

namespace baton::model {
namespace {

constexpr int64_t kMostFileBytes = int64_t{1} << 30;

// Finds a token's id in tokenizer.json: among `added_tokens`, or else in the model's `vocab`. It reads event
// by event and stops at the first of them, as the rest of such a file is megabytes of merges.
class TokenFinder final : public Json::json_sax_t {
 public:
  explicit TokenFinder(std::string text) : text_(std::move(text)) {}

  std::optional<int64_t> id() const { return added_.has_value() ? added_ : in_vocabulary_; }

  bool key(std::string& name) override {
    path_.back() = name;
    return true;
  }
  bool start_object(std::size_t) override {
    path_.emplace_back();
    if (InAddedToken()) {
      content_matches_ = false;
      content_id_.reset();
    }
    return true;
  }
  bool end_object() override {
    if (InAddedToken() && content_matches_ && content_id_.has_value()) added_ = content_id_;
    path_.pop_back();
    return !added_.has_value();
  }
  bool start_array(std::size_t) override {
    path_.emplace_back();
    return true;
  }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool string(std::string& value) override {
    if (InAddedToken() && path_.back() == "content") content_matches_ = value == text_;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (InAddedToken() && path_.back() == "id") content_id_ = static_cast<int64_t>(value);
    if (path_.size() == 3 && path_[0] == "model" && path_[1] == "vocab" && path_[2] == text_) {
      in_vocabulary_ = static_cast<int64_t>(value);
    }
    return true;
  }
  bool number_integer(int64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool boolean(bool) override { return true; }
  bool null() override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;  // the tokenizer's own reader says what is wrong
  }

 private:
  // Inside an object of the list, whatever it says of itself.
  bool InAddedToken() const { return path_.size() == 3 && path_[0] == "added_tokens"; }

  const std::string text_;
  std::vector<std::string> path_;  // the key in each open object; empty in a list
  bool content_matches_ = false;
  std::optional<int64_t> content_id_, added_, in_vocabulary_;
};

// The file's object; null if the folder has no such file.
absl::StatusOr<Json> ReadObject(const std::filesystem::path& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path, kMostFileBytes);
  if (absl::IsNotFound(text.status())) return Json();
  BATON_RETURN_IF_ERROR(text.status());
  BATON_ASSIGN_OR_RETURN(Json json, ParseJson(*text, path.string()));
  BATON_RETURN_IF_ERROR(JsonFields(json, path.string()).status());
  return json;
}

// `eos_token` as a text, or as an object with one.
std::optional<std::string> EosText(const Json& tokens) {
  const auto found = tokens.find("eos_token");
  if (found == tokens.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object()) return std::nullopt;
  const auto content = found->find("content");
  if (content == found->end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

absl::StatusOr<std::optional<int64_t>> EosOfTokenizer(const std::filesystem::path& folder) {
  std::optional<std::string> text;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (text.has_value()) break;
    BATON_ASSIGN_OR_RETURN(const Json tokens, ReadObject(folder / file));
    text = EosText(tokens);
  }
  if (!text.has_value()) return std::nullopt;
  const absl::StatusOr<std::string> tokenizer = ReadTextFile(folder / "tokenizer.json", kMostFileBytes);
  if (absl::IsNotFound(tokenizer.status())) return std::nullopt;
  BATON_RETURN_IF_ERROR(tokenizer.status());
  TokenFinder finder(*std::move(text));
  Json::sax_parse(*tokenizer, &finder);
  return finder.id();
}

}  // namespace

std::vector<TokenId> EndsOfGeneration(const Json& generation, int64_t vocabulary) {
  const auto found = generation.find("eos_token_id");
  if (found == generation.end()) return {};
  std::vector<TokenId> ends;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocabulary)) continue;
    ends.emplace_back(id.get<int32_t>());
  }
  return ends;
}

absl::StatusOr<std::vector<TokenId>> EndTokens(const std::string& folder,
                                               const std::vector<TokenId>& of_config, int64_t vocabulary) {
  std::vector<TokenId> ends;
  const auto add = [&ends](TokenId id) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  for (const TokenId id : of_config) add(id);
  const std::filesystem::path path(folder);
  BATON_ASSIGN_OR_RETURN(const Json generation, ReadObject(path / "generation_config.json"));
  for (const TokenId id : EndsOfGeneration(generation, vocabulary)) add(id);
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> eos, EosOfTokenizer(path));
  if (eos.has_value() && *eos < vocabulary) add(TokenId(static_cast<int32_t>(*eos)));
  return ends;
}

}  // namespace baton::model
