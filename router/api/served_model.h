// ServedModel: what the router itself needs of a model: its name, tokenizer, chat template, limits and
// defaults. An entry of the ModelRegistry. Immutable after Load, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "router/api/grammar_check.h"
#include "router/moderation/classifier_format.h"
#include "router/tenancy/tenants.h"
#include "text/chat_template.h"
#include "text/config/config.h"
#include "text/literal_text.h"
#include "text/output/format_choice.h"
#include "text/output/history_style.h"
#include "text/output/marker_table.h"
#include "text/tokenizer.h"

namespace baton::router {

struct ServedModel {
  std::string name;        // that requests use
  std::string config;      // ModelConfig::Digest(), which is also in the fingerprint of its workers
  size_t fleet = 0;        // of the router's, the one that serves it (CallContext::fleets)
  int64_t context = 0;     // tokens, prompt and answer together
  int64_t vocabulary = 0;  // rows of the embedding
  // text::TokenizerDigest and model::EndsDigest, which its decode workers tell, too; and that of the
  // template's text (of none: of the empty text), for other routers.
  std::string tokenizer_digest, ends_digest, template_digest;
  // SHA-256 over what prompts and answers follow from here: those three, the folder's defaults, and the
  // format in which parts are looked for.
  std::string answer_digest;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: no Chat
  std::shared_ptr<const text::LiteralText> literal;         // keeps control tokens out of clients' text
  std::shared_ptr<const GrammarCheck> grammars;             // never null after Load
  model::GenerationDefaults defaults;
  // How it writes thinking and tool calls. Its format is never null, and "none" where nothing is known.
  output::FormatChoice output = {.format = output::FindFormat("none")};
  output::HistoryStyle history;                        // all false without a template
  std::shared_ptr<const output::MarkerTable> markers;  // of its format; never null after Load
  // Its calls can be constrained; and so can text beside them.
  bool strict_tools = false, text_beside_tools = false;
  // Parts of an answer after which the next turn's prompt is another text (text/output/stable_history.h).
  std::vector<std::string_view> unstable_history;

  // The tenants that may use it, and know of it; empty: all.
  absl::flat_hash_set<std::string> tenants;
  // The most tokens of an answer; 0: as many as the context takes.
  int64_t max_tokens = 0;
  // The number that is asked for, or max_tokens.
  uint32_t Lowered(uint32_t asked) const {
    return max_tokens > 0 ? static_cast<uint32_t>(std::min<int64_t>(asked, max_tokens)) : asked;
  }
  // Its number among the models' meters, if it has rates for all tenants together.
  std::optional<admission::TenantId> meter;
  // Started.build of answers of workers with this digest (protocol::AnswerDigest): 16 hexadecimal digits.
  std::string BuildWith(std::string_view workers) const;
  bool MayUse(const Tenant& tenant) const {
    return tenants.empty() || tenant.internal || tenants.contains(tenant.name);
  }

  // It is a classifier, of this format (null: it is none), and a verdict takes so many bytes of text.
  const moderation::ClassifierFormat* classifier = nullptr;
  size_t classifier_room = 0;

  // `name` empty takes the folder's. `output_format` empty: the one whose parser reads what the model's
  // template writes, if there is one; else a name that the operator gave, which is taken without that proof.
  // `classifier`: the name of its verdicts' format, which its template has to fit; empty: it is none.
  // A folder whose tokenizer or template takes more than any real one's ends the process (LoadWatch).
  static absl::StatusOr<ServedModel> Load(const std::string& folder, const std::string& name,
                                          const std::string& output_format = "",
                                          const std::string& classifier = "");
};

}  // namespace baton::router
