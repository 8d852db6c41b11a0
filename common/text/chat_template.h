// ChatTemplate: a model's Jinja chat template (chat_template.jinja, or chat_template in
// tokenizer_config.json), rendered as Hugging Face transformers does: trim_blocks, lstrip_blocks,
// raise_exception, strftime_now, tojson, and the special tokens as variables. Immutable after Load; any
// thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::text {

class ChatTemplate {
 public:
  // NOT_FOUND if the folder has no template; INVALID_ARGUMENT, with the line, if it does not compile.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Load(const std::string& folder);
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> FromSource(const std::string& source,
                                                                        const nlohmann::json& special_tokens);
  ~ChatTemplate();

  // variables: an object with at least "messages" (role, content, tool_calls, ...), and "tools",
  // "add_generation_prompt", "enable_thinking" and others as the caller sets. A template that raises is
  // INVALID_ARGUMENT with the template's own message.
  absl::StatusOr<std::string> Render(const nlohmann::json& variables) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
