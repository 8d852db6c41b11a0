#include "router/discovery/entry.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "text/config/json_fields.h"

namespace baton::router::discovery {
namespace {

absl::StatusOr<std::vector<Entry>> ReadList(const model::Json& root, const char* name,
                                            std::string_view file) {
  std::vector<Entry> entries;
  const auto found = root.find(name);
  if (found == root.end()) return entries;
  if (!found->is_array()) {
    return absl::InvalidArgumentError(fmt::format("{}: field \"{}\" is not a list", file, name));
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const model::Json& value = (*found)[i];
    const std::string where = fmt::format("{}: {}[{}]", file, name, i);
    if (!value.is_string()) {
      return absl::InvalidArgumentError(fmt::format("{}: {} is not text", where, model::Shown(value)));
    }
    absl::StatusOr<Entry> entry = Entry::Parse(value.get_ref<const std::string&>());
    if (!entry.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", where, std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<Entry>> ParseEntries(const std::vector<std::string>& texts,
                                                std::string_view where) {
  std::vector<Entry> entries;
  for (const std::string& text : texts) {
    absl::StatusOr<Entry> entry = Entry::Parse(text);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", where, std::string(entry.status().message())));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<Lists> ParseFleetFile(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(text, file));
  if (!root.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", file));
  for (const auto& [name, value] : root.items()) {
    if (name != "decode" && name != "prefill") {
      return absl::InvalidArgumentError(
          fmt::format("{}: unknown field \"{}\"; there are \"decode\" and \"prefill\"", file, name));
    }
  }
  Lists lists;
  BATON_ASSIGN_OR_RETURN(lists.decode, ReadList(root, "decode", file));
  BATON_ASSIGN_OR_RETURN(lists.prefill, ReadList(root, "prefill", file));
  if (const size_t entries = lists.decode.size() + lists.prefill.size(); entries > kMaxFleetFileEntries) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} entries; a router watches at most {}: split the fleet among several routers",
                    file, entries, kMaxFleetFileEntries));
  }
  return lists;
}

}  // namespace baton::router::discovery
