#include "text/chat_template.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "text/gguf_text.h"
#include "text/model_file.h"
#include "text/rust_call.h"

namespace baton::text {
namespace {

using Json = ChatTemplate::Json;

// Bounds the recursion of everything that walks a request's JSON, on both sides of the C border.
constexpr int kMaxDepth = 100;

bool DeeperThan(const Json& value, int limit) {
  if (!value.is_structured()) return false;
  if (limit == 0) return true;
  for (const Json& item : value) {
    if (DeeperThan(item, limit - 1)) return true;
  }
  return false;
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string content, ReadModelFile(path));
  absl::StatusOr<Json> json = json::Parse<Json>(content);
  if (!json.ok()) return InFile(path, json.status());
  if (!json->is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  return json;
}

// The members that are a text, or an object with one as "content".
Json Texts(const Json& tokens) {
  Json texts = Json::object();
  for (const auto& [name, value] : tokens.items()) {
    if (value.is_string()) {
      texts[name] = value;
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      texts[name] = value["content"];
    }
  }
  return texts;
}

// The special tokens that a config file states: members with names like "bos_token", and an object of further
// ones.
Json SpecialTokens(const Json& config) {
  const auto extra = config.find("extra_special_tokens");
  Json tokens = extra != config.end() && extra->is_object() ? Texts(*extra) : Json::object();
  const Json stated = Texts(config);
  for (const auto& [name, text] : stated.items()) {
    if (absl::EndsWith(name, "_token")) tokens[name] = text;
  }
  return tokens;
}

// chat_template in tokenizer_config.json: a string, or a list of named ones.
absl::StatusOr<ChatTemplate::Sources> SourcesOf(const Json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no chat_template, and no chat_template.jinja beside it"));
  }
  if (found->is_string()) return ChatTemplate::Sources{.chat = found->get<std::string>(), .tool_use = {}};
  if (!found->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": chat_template is neither a string nor a list"));
  }
  ChatTemplate::Sources sources;
  for (const Json& named : *found) {
    if (!named.is_object() || !named.value("template", Json()).is_string()) continue;
    if (named.value("name", Json()) == "default") sources.chat = named["template"].get<std::string>();
    if (named.value("name", Json()) == "tool_use") sources.tool_use = named["template"].get<std::string>();
  }
  if (sources.chat.empty() && sources.tool_use.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": chat_template has no entry named \"default\" or \"tool_use\""));
  }
  return sources;
}

// The templates of a folder, as files or in `config`, and the path to name if they don't compile. NOT_FOUND
// if it has none.
absl::StatusOr<std::pair<ChatTemplate::Sources, std::string>> SourcesIn(const std::string& folder,
                                                                        const absl::StatusOr<Json>& config) {
  const std::string jinja = absl::StrCat(folder, "/chat_template.jinja");
  const std::string tool_use = absl::StrCat(folder, "/additional_chat_templates/tool_use.jinja");
  ChatTemplate::Sources sources;
  for (const auto& [path, source] : {std::pair(&jinja, &sources.chat), {&tool_use, &sources.tool_use}}) {
    auto text = ReadModelFile(*path);
    if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
    if (text.ok()) *source = *std::move(text);
  }
  if (!sources.chat.empty()) return std::pair(sources, jinja);
  if (!sources.tool_use.empty()) return std::pair(sources, tool_use);
  const std::string path = absl::StrCat(folder, "/tokenizer_config.json");
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(absl::StrCat(folder, ": no chat_template.jinja and no tokenizer_config.json"));
  }
  BATON_ASSIGN_OR_RETURN(sources, SourcesOf(*config, path));
  return std::pair(sources, path);
}

// Changes a message as transformers does before a template sees it.
Json NormalizedMessage(const Json& message) {
  constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};
  Json normalized = Json::object();
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null() || (name == "content" && message.contains("tool_calls"))) normalized[name] = value;
  }
  for (const std::string_view name : kReasoning) {
    const auto found = normalized.find(std::string(name));
    if (found == normalized.end()) continue;
    const Json reasoning = *found;
    normalized["reasoning_content"] = reasoning;
    if (!normalized.contains("thinking")) normalized["thinking"] = reasoning;
    break;
  }
  return normalized;
}

// A text becomes a list of one part, as clients of models with images write it.
void PutTextInParts(Json* messages) {
  for (Json& message : *messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    *content = Json::array({{{"type", "text"}, {"text", *content}}});
  }
}

struct FreeTemplate {
  void operator()(baton_template* handle) const { CallRust(baton_template_free, handle); }
};

struct Compiled {
  std::unique_ptr<baton_template, FreeTemplate> handle;  // null: there is none
  // The template reads the content of a message as a list of parts, and leaves out one that is a text.
  bool parts = false;
};

// `variables` as the template sees them, but for parts.
absl::StatusOr<std::string> RenderWith(const Compiled& compiled, Json variables, absl::Time now,
                                       size_t max_bytes) {
  if (compiled.parts) PutTextInParts(&variables["messages"]);
  std::string json;
  try {
    json = variables.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("messages: text is not UTF-8: ", error.what()));
  }
  baton_text_bytes text;
  baton_text_bytes error;
  const int32_t code = CallRust(baton_template_render, compiled.handle.get(), Data(json), json.size(),
                                absl::ToUnixSeconds(now), max_bytes, &text, &error);
  if (code != BATON_TEXT_OK) return InFile("chat template", TakeError(code, error));
  return Take(text);
}

// Renders a user's message to learn how the template reads its content. One that refuses both forms, or
// writes neither, gets texts.
bool ReadsPartsAlone(Compiled* compiled, const Json& defaults, const Json& tools) {
  constexpr char kText[] = "qzx-a-text-of-no-template";
  constexpr size_t kMostBytes = 1 << 20;
  Json variables = defaults;
  variables["messages"] = Json::array({{{"role", "user"}, {"content", kText}}});
  variables["tools"] = tools;
  const auto writes = [&](bool parts) {
    compiled->parts = parts;
    const auto text = RenderWith(*compiled, variables, absl::UnixEpoch(), kMostBytes);
    return text.ok() && absl::StrContains(*text, kText);
  };
  return !writes(false) && writes(true);
}

}  // namespace

struct ChatTemplate::Impl {
  Compiled chat, tool_use;
  Json defaults;  // variables that a caller may override
  std::string digest;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Load(const std::string& folder) {
  BATON_ASSIGN_OR_RETURN(const auto file, gguf::OpenIfGguf(folder));
  if (file.has_value()) {
    BATON_ASSIGN_OR_RETURN(const GgufTemplate found, TemplateOfGguf(file->document));
    auto loaded = FromSources({.chat = found.source, .tool_use = found.tool_use}, found.special_tokens);
    if (!loaded.ok()) return InFile(folder, loaded.status());
    return loaded;
  }
  const auto config = ReadJson(absl::StrCat(folder, "/tokenizer_config.json"));
  if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
  BATON_ASSIGN_OR_RETURN(const auto found, SourcesIn(folder, config));
  const auto& [sources, path] = found;

  // Older folders state the special tokens in a file of their own; the config wins.
  const auto map = ReadJson(absl::StrCat(folder, "/special_tokens_map.json"));
  if (!map.ok() && !absl::IsNotFound(map.status())) return map.status();
  Json tokens = map.ok() ? SpecialTokens(*map) : Json::object();
  if (config.ok()) tokens.update(SpecialTokens(*config));

  auto loaded = FromSources(sources, tokens);
  if (!loaded.ok()) return InFile(path, loaded.status());
  return loaded;
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::FromSources(const Sources& sources,
                                                                              const Json& special_tokens) {
  auto impl = std::make_unique<Impl>();
  for (const auto& [source, compiled] :
       {std::pair(&sources.chat, &impl->chat), {&sources.tool_use, &impl->tool_use}}) {
    if (source->empty() && source == &sources.tool_use) continue;
    if (source->empty() && !sources.tool_use.empty()) continue;
    baton_template* handle = nullptr;
    baton_text_bytes error;
    if (int32_t code = CallRust(baton_template_new, Data(*source), source->size(), &handle, &error);
        code != BATON_TEXT_OK) {
      return TakeError(code, error);
    }
    compiled->handle.reset(handle);
  }
  impl->defaults = special_tokens.is_object() ? Texts(special_tokens) : Json::object();
  impl->digest =
      Sha256Of(sources.tool_use.empty() ? sources.chat
                                        : absl::StrCat(sources.chat, std::string(1, '\0'), sources.tool_use));
  impl->defaults["tools"] = nullptr;
  impl->defaults["documents"] = nullptr;
  impl->defaults["add_generation_prompt"] = false;
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "look"},
                       {"description", "Looks."},
                       {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
  for (const auto& [compiled, tools] :
       {std::pair(&impl->chat, Json()), {&impl->tool_use, Json::array({tool})}}) {
    if (compiled->handle != nullptr) compiled->parts = ReadsPartsAlone(compiled, impl->defaults, tools);
  }
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

const std::string& ChatTemplate::digest() const { return impl_->digest; }

absl::StatusOr<std::string> ChatTemplate::Render(const Json& variables, absl::Time now,
                                                 size_t max_bytes) const {
  if (!variables.is_object() || !variables.contains("messages") || !variables["messages"].is_array()) {
    return absl::InvalidArgumentError("messages: a chat needs a list of messages");
  }
  if (DeeperThan(variables, kMaxDepth)) {
    return absl::InvalidArgumentError(absl::StrCat("messages: nested deeper than ", kMaxDepth, " levels"));
  }
  Json all = variables;
  for (const auto& [name, value] : impl_->defaults.items()) {
    if (!variables.contains(name)) json::Append(&all, name, value);
  }
  for (Json& message : all["messages"]) {
    if (!message.is_object()) return absl::InvalidArgumentError("messages: every message is an object");
    message = NormalizedMessage(message);
  }
  const bool tools = !all["tools"].is_null();
  const Compiled& used = tools && impl_->tool_use.handle != nullptr ? impl_->tool_use : impl_->chat;
  if (used.handle == nullptr) {
    return absl::InvalidArgumentError(
        "messages: this model has a chat template for chats with tools alone: give tools");
  }
  return RenderWith(used, std::move(all), now, max_bytes);
}

}  // namespace baton::text
