#include "tests/fuzz/text_bytes.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

namespace fs = std::filesystem;

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

// False, or unsound: a refusal has words and the right code.
absl::StatusOr<bool> Refused(const absl::Status& status) {
  if (status.message().empty()) return Unsound("refused without a message");
  if (!absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) return Unsound(status.ToString());
  return false;
}

// A tokenizer that loads and yet makes no sense may fail at work; the library's panics come as INTERNAL.
absl::StatusOr<bool> FailedAtWork(const absl::Status& status) {
  return absl::IsInternal(status) && !status.message().empty() ? absl::StatusOr<bool>(false)
                                                               : Refused(status);
}

// A template's variables.
const ChatTemplate::Json& Conversation() {
  static const auto conversation = ChatTemplate::Json::parse(R"({
      "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is \u00e9?"},
                   {"role": "assistant", "content": "A letter.", "reasoning_content": "Easy.",
                    "tool_calls": [{"type": "function", "id": "1",
                                    "function": {"name": "look", "arguments": {"at": [1, 2.5, null]}}}]},
                   {"role": "tool", "content": "seen", "tool_call_id": "1"}],
      "tools": [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}],
      "add_generation_prompt": true, "enable_thinking": false})");
  return conversation;
}

absl::StatusOr<bool> Rendered(const absl::StatusOr<std::shared_ptr<const ChatTemplate>>& made) {
  if (!made.ok()) return Refused(made.status());
  const auto text = (*made)->Render(Conversation(), absl::UnixEpoch());
  if (!text.ok()) return Refused(text.status());
  if (!IsUtf8(*text)) return Unsound("what it renders is not UTF-8");
  return true;
}

// A folder with one file, which is written again each time.
class OneFile {
 public:
  explicit OneFile(std::string name) : name_(std::move(name)) {
    std::string pattern = fs::temp_directory_path() / "baton-fuzz-XXXXXX";
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~OneFile() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string Write(std::span<const uint8_t> bytes) const {
    std::ofstream out(folder_ / name_, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    BATON_CHECK(out.flush().good()) << folder_.string();
    return folder_;
  }

 private:
  const std::string name_;
  fs::path folder_;
};

}  // namespace

absl::StatusOr<bool> FuzzTokenizer(std::span<const uint8_t> bytes) {
  const auto made =
      Tokenizer::FromJson(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!made.ok()) return Refused(made.status());
  const Tokenizer& tokenizer = **made;
  if (tokenizer.vocabulary() < 0) return Unsound("a vocabulary of less than nothing");
  for (const std::string_view text :
       {"", "Hello, world!\n", "  caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80", "<s>[INST] </s>"}) {
    for (const bool special : {false, true}) {
      const auto tokens = tokenizer.Encode(text, special);
      if (!tokens.ok()) return FailedAtWork(tokens.status());
      for (TokenId token : *tokens) {
        if (token.value() < 0 || token.value() >= tokenizer.vocabulary()) {
          return Unsound(fmt::format("token {} of {}", token.value(), tokenizer.vocabulary()));
        }
        tokenizer.TokenBytes(token);
        tokenizer.IsSpecial(token);
      }
      const auto decoded = tokenizer.Decode(*tokens, special);
      if (!decoded.ok()) return FailedAtWork(decoded.status());
      if (!IsUtf8(*decoded)) return Unsound("decoding gives other than UTF-8");
    }
  }
  if (tokenizer.Encode("\xff", false).ok()) return Unsound("encodes what is not UTF-8");
  if (tokenizer.Decode(std::vector<TokenId>{TokenId(-1)}, false).ok()) return Unsound("decodes token -1");
  return true;
}

absl::StatusOr<bool> FuzzTokenizerConfig(std::span<const uint8_t> bytes) {
  static const OneFile file("tokenizer_config.json");
  return Rendered(ChatTemplate::Load(file.Write(bytes)));
}

absl::StatusOr<bool> FuzzChatTemplate(std::span<const uint8_t> bytes) {
  return Rendered(ChatTemplate::FromSource({bytes.begin(), bytes.end()}, {{"bos_token", "<s>"}}));
}

}  // namespace baton::text
