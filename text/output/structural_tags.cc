#include "text/output/structural_tags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "text/output/constraint.h"
#include "text/utf8.h"

namespace baton::output {
namespace {

constexpr size_t kMaxTextBytes = 256;  // of a trigger, a tag's begin or its end
constexpr std::string_view kAnyText = "/(.|\\n)*/";

absl::Status WrongTag(size_t i, std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("tags[{}].{}: {}", i, field, what));
}

// As a string of Lark, which is one of JSON.
std::string LarkString(std::string_view text) { return nlohmann::json(std::string(text)).dump(); }

absl::Status CheckText(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes long, at most {} are allowed", text.size(), kMaxTextBytes));
  }
  return text::IsUtf8(text) ? absl::OkStatus() : absl::InvalidArgumentError("not UTF-8");
}

absl::Status CheckCount(std::string_view what, size_t count) {
  if (count >= 1 && count <= kMaxStructuralTags) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: there are {}, 1 to {} are allowed", what, count, kMaxStructuralTags));
}

absl::Status CheckTriggers(std::span<const std::string> triggers) {
  BATON_RETURN_IF_ERROR(CheckCount("triggers", triggers.size()));
  for (size_t i = 0; i < triggers.size(); ++i) {
    absl::Status bad = CheckText(triggers[i]);
    if (triggers[i].empty()) bad = absl::InvalidArgumentError("empty");
    for (size_t j = 0; j < triggers.size() && bad.ok(); ++j) {
      if (j == i || triggers[j].find(triggers[i]) == std::string::npos) continue;
      bad = absl::InvalidArgumentError(fmt::format("part of triggers[{}], which would never be reached", j));
    }
    if (!bad.ok()) {
      return absl::InvalidArgumentError(fmt::format("triggers[{}]: {}", i, std::string(bad.message())));
    }
  }
  return absl::OkStatus();
}

void AddAlternative(std::string_view one, std::string* all) {
  if (!all->empty()) *all += " | ";
  *all += one;
}

// Any text with one of these in it.
std::string Containing(std::span<const std::string> triggers) {
  std::string any;
  for (const std::string& trigger : triggers) AddAlternative(LarkString(trigger), &any);
  return fmt::format("({} ({}) {})", kAnyText, any, kAnyText);
}

}  // namespace

absl::StatusOr<std::string> StructuralGrammar(std::span<const StructuralTag> tags,
                                              std::span<const std::string> triggers) {
  constexpr std::string_view kStart = "start: ";
  BATON_RETURN_IF_ERROR(CheckCount("tags", tags.size()));
  BATON_RETURN_IF_ERROR(CheckTriggers(triggers));
  std::vector<std::string> spans(triggers.size());  // by trigger: what may follow it
  std::string rules;
  for (size_t i = 0; i < tags.size(); ++i) {
    const StructuralTag& tag = tags[i];
    for (const auto& [field, text] : {std::pair("begin", &tag.begin), {"end", &tag.end}}) {
      if (absl::Status bad = CheckText(*text); !bad.ok())
        return WrongTag(i, field, std::string(bad.message()));
    }
    const auto trigger =
        std::ranges::find_if(triggers, [&](const std::string& one) { return tag.begin.starts_with(one); });
    if (trigger == triggers.end()) return WrongTag(i, "begin", "begins with none of the triggers");
    absl::StatusOr<std::string> schema = SchemaGrammar(tag.json_schema);
    if (!schema.ok()) return WrongTag(i, "json_schema", std::string(schema.status().message()));
    rules += fmt::format("value_{}: {}", i, schema->substr(kStart.size()));
    std::string span;
    if (tag.begin.size() > trigger->size()) {
      span = fmt::format("{} ", LarkString(tag.begin.substr(trigger->size())));
    }
    span += fmt::format("value_{}", i);
    if (!tag.end.empty()) span += fmt::format(" {}", LarkString(tag.end));
    AddAlternative(span, &spans[trigger - triggers.begin()]);
  }
  std::string any;
  for (size_t i = 0; i < triggers.size(); ++i) {
    if (spans[i].empty()) {
      return absl::InvalidArgumentError(fmt::format("triggers[{}]: no tag begins with it", i));
    }
    any += fmt::format("{}span_{}", i == 0 ? "" : " | ", i);
    // Text up to the first trigger, which is this one.
    std::vector<std::string> others(triggers.begin(), triggers.end());
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    rules += fmt::format(
        "span_{0}: before_{0} ({1})\nbefore_{0}[lazy]: BEFORE_{0}\nBEFORE_{0}: ({2} {3}){4}\n", i, spans[i],
        kAnyText, LarkString(triggers[i]), others.empty() ? "" : fmt::format(" & ~{}", Containing(others)));
  }
  return fmt::format("start: ({})* FREE?\nFREE: /(.|\\n)+/ & ~{}\n{}", any, Containing(triggers), rules);
}

}  // namespace baton::output
