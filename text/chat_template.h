// ChatTemplate: a model's Jinja chat template (chat_template.jinja, or chat_template in
// tokenizer_config.json; or that of a GGUF file), rendered as Hugging Face transformers does: trim_blocks,
// lstrip_blocks, raise_exception, strftime_now, tojson, and the special tokens as variables. Instructions (by
// the size of the variables), recursion, output and what each filter and method makes are bounded. What
// operators (`~`, `+`, `*`) and blocks ({% set %}) make is not: templates come from the operator, never from
// a request, and telemetry::LoadWatch stands by when one is tried out. Rendering is linear in the variables.
// Immutable after Load; any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace baton::text {

class ChatTemplate {
 public:
  // Objects keep their order: `tojson` writes tools and arguments in the order in which the caller gave them.
  using Json = nlohmann::ordered_json;

  // A model may have one more template for chats with tools, "tool_use": of the list in
  // tokenizer_config.json, additional_chat_templates/tool_use.jinja, or tokenizer.chat_template.tool_use of a
  // GGUF file.
  struct Sources {
    std::string chat;      // empty: there is none, and chats without tools are refused
    std::string tool_use;  // empty: `chat` serves those with tools too
  };

  // NOT_FOUND if the folder or file has no template; INVALID_ARGUMENT, with the file and the line, if it does
  // not compile.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Load(const std::string& folder);
  // special_tokens: an object from name ("bos_token") to text, or to an object with "content".
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> FromSources(const Sources& sources,
                                                                         const Json& special_tokens);
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> FromSource(const std::string& source,
                                                                        const Json& special_tokens) {
    return FromSources({.chat = source, .tool_use = {}}, special_tokens);
  }
  ~ChatTemplate();

  // variables: an object with at least "messages" (role, content, tool_calls, ...), and "tools",
  // "add_generation_prompt", "enable_thinking" and others as the caller sets. As transformers does, a null
  // member of a message counts as absent (but for the content of one with calls: templates of the time before
  // transformers 5 ask for it), reasoning_content, thinking and reasoning name the same thing, and
  // "tools" and "documents" are none and "add_generation_prompt" is false unless given. A template that reads
  // the content of messages as lists of parts alone (those of models that read images, too) gets each text as
  // [{"type": "text", "text": ...}]; a probe at the start tells. now is what
  // strftime_now sees, in local time. "tools" that are not null ask for the template of that use. A template
  // that raises is INVALID_ARGUMENT with the template's own message and line. OUT_OF_RANGE as soon as the
  // text is longer than `max_bytes`.
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  absl::StatusOr<std::string> Render(const Json& variables, absl::Time now = absl::Now(),
                                     size_t max_bytes = kMaxBytes) const;

  // SHA-256 (32 bytes) of the template's text, or of both, without the special tokens.
  const std::string& digest() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
