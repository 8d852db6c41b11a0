#include "common/command_line/help_format.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/command_line/constraint.h"

namespace baton::command_line {
namespace {

std::string Names(const std::set<CLI::Option*>& options) {
  return absl::StrJoin(options, ", ",
                       [](std::string* out, const CLI::Option* option) { *out += option->get_name(); });
}

// CLI11 writes a list's default as "[a,b]".
std::string Default(const CLI::Option& option) {
  std::string text = option.get_default_str();
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  const std::string placeholder = ConstraintOf(*option).placeholder;
  return placeholder.empty() ? "" : " " + placeholder;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  std::vector<std::string> notes;
  if (const std::string range = ConstraintOf(*option).range; !range.empty()) notes.push_back(range);
  if (const std::string text = Default(*option); !text.empty() && option->get_type_size() != 0) {
    notes.push_back("default " + text);
  }
  if (option->get_required()) notes.emplace_back("required");
  if (!option->get_needs().empty()) notes.push_back("with " + Names(option->get_needs()));
  if (!option->get_excludes().empty()) notes.push_back("not with " + Names(option->get_excludes()));
  if (notes.empty()) return option->get_description();
  return fmt::format("{} ({})", option->get_description(), absl::StrJoin(notes, "; "));
}

}  // namespace baton::command_line
