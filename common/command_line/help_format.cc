#include "common/command_line/help_format.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/command_line/constraint.h"
#include "common/command_line/parse.h"

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

// The group of options that --help leaves out, of an app with ShowFirst.
constexpr char kMoreGroup[] = "More";
// The group of those that are in no other.
constexpr char kFirstGroup[] = "Options";

bool HasMore(const CLI::App& app) {
  return !app.get_options([](const CLI::Option* option) { return option->get_group() == kMoreGroup; })
              .empty();
}

}  // namespace

void ShowFirst(CLI::App& app, const std::vector<std::string>& names) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_group() == kFirstGroup && option != app.get_help_ptr() &&
        option != app.get_help_all_ptr())
      option->group(kMoreGroup);
  }
  for (const std::string& name : names) app.get_option(name)->group(kFirstGroup);
}

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  brief_ = mode == CLI::AppFormatMode::Normal && HasMore(*app);
  std::string help = Formatter::make_help(app, std::move(name), mode);
  // Groups that are left out leave their empty lines.
  for (size_t at = 0; (at = help.find("\n\n\n", at)) != std::string::npos;) help.erase(at, 1);
  return help;
}

std::string HelpFormat::make_group(std::string group, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  if (brief_ && !is_positional && group != kFirstGroup) return "";
  return Formatter::make_group(std::move(group), is_positional, std::move(options));
}

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
