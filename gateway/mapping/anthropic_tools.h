// Tools of Anthropic's Messages API: the client's own, and those of a type that its models know by heart and
// the client runs (a shell, an editor of files, a memory), which other models are told here. A tool that runs
// on the vendor's servers is INVALID_ARGUMENT. Source: the API reference of Anthropic (tools; bash, text
// editor and memory tool). Pure functions, any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// The tools that a conversation refers to.
class ToolReferences {
 public:
  // The conversation outlives it, and gets no other tools.
  explicit ToolReferences(const v1::Conversation& conversation);
  // The text of a reference: the first has the tool's description, as most templates write those in a
  // prompt's beginning; later ones say that it is there. Nothing: there is no tool of that name.
  std::optional<std::string> Text(const std::string& tool);

 private:
  absl::flat_hash_map<std::string, const v1::Tool*> tools_;  // never null
  absl::flat_hash_set<std::string> described_;
};

// The member `tools`.
absl::Status ReadAnthropicTools(JsonObject& body, v1::Conversation* conversation);
// The member `tool_choice`, of a request whose tools have been read.
absl::Status ReadAnthropicToolChoice(JsonObject& body, v1::ChatRequest* request);

}  // namespace baton::gateway
