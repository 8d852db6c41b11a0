#include "tests/golden/weights/quality.h"

#include <fmt/format.h>

#include <fstream>

#include "common/base/check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {
// Every tenth of the 200 conversations: each length and each kind of fact is among them.
std::vector<std::vector<TokenId>> Conversations(const std::string& folder) {
  const auto chat = text::ChatTemplate::Load(folder);
  const auto tokenizer = text::Tokenizer::Load(folder);
  BATON_CHECK(chat.ok() && tokenizer.ok()) << folder;
  std::ifstream file(folder + "/eval/recall.jsonl");
  std::vector<std::vector<TokenId>> texts;
  std::string line;
  for (int i = 0; std::getline(file, line); ++i) {
    if (i % 10 != 0) continue;
    const auto rendered = (*chat)->Render({{"messages", text::ChatTemplate::Json::parse(line)["messages"]}});
    BATON_CHECK(rendered.ok()) << rendered.status().ToString();
    texts.push_back((*tokenizer)->Encode(*rendered, /*add_special_tokens=*/false).value());
  }
  return texts;
}

std::string Describe(const lab::Distance& distance) {
  return fmt::format(
      "{} tokens: KLD mean {:.6f}, largest {:.4f}; perplexity {:.4f} stored, {:.4f} here; same likeliest "
      "token {:.2f}%",
      distance.positions, distance.mean, distance.largest, distance.perplexity_reference, distance.perplexity,
      100 * distance.same_choice);
}

}  // namespace baton
