#include "cli/serve/flag_list.h"

#include <algorithm>

namespace baton::cli {

std::string FlagName(std::string_view flag) { return std::string(flag.substr(0, flag.find('='))); }

void FlagList::Set(const std::string& name, std::optional<std::string> value) {
  Put({.name = name, .value = std::move(value)});
}

void FlagList::Add(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    Flag flag{.name = FlagName(arguments[i])};
    if (flag.name.size() < arguments[i].size()) {
      flag.value = arguments[i].substr(flag.name.size() + 1);
      flag.joined = !flag.value->empty();  // of "--name=" a process takes the next argument for the value
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      flag.value = arguments[++i];
    }
    Put(std::move(flag));
  }
}

std::optional<std::string> FlagList::Value(std::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.value.value_or("");
  }
  return std::nullopt;
}

std::vector<std::string> FlagList::Arguments() const {
  std::vector<std::string> all;
  for (const Flag& flag : flags_) {
    if (flag.joined) {
      all.push_back(flag.name + "=" + *flag.value);
      continue;
    }
    all.push_back(flag.name);
    if (flag.value.has_value()) all.push_back(*flag.value);
  }
  return all;
}

void FlagList::Put(Flag flag) {
  const auto same =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& one) { return one.name == flag.name; });
  if (same == flags_.end()) {
    flags_.push_back(std::move(flag));
  } else {
    *same = std::move(flag);
  }
}

}  // namespace baton::cli
