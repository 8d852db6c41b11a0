#include "cli/chat/token_ids.h"

#include <fmt/format.h>

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace baton::cli {
namespace {

constexpr size_t kMaxShown = 40;

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text) {
  std::vector<int32_t> ids;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const absl::string_view number = absl::StripAsciiWhitespace(part);
    int32_t id = 0;
    const bool digits = !number.empty() && number.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(number, &id)) {
      const std::string shown(number.substr(0, kMaxShown));
      return absl::InvalidArgumentError(
          fmt::format("\"{}\" at place {} is not a token id: give whole numbers from 0 to {} with commas "
                      "between them, 1,2,3",
                      shown, ids.size() + 1, std::numeric_limits<int32_t>::max()));
    }
    ids.push_back(id);
  }
  return ids;
}

CLI::Option* AddTokenIds(CLI::App& app, const std::string& name, std::vector<int32_t>& into,
                         const std::string& description) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [&into, name](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              const absl::StatusOr<std::vector<int32_t>> ids = ParseTokenIds(text);
              if (!ids.ok()) throw CLI::ValidationError(name, std::string(ids.status().message()));
              into.insert(into.end(), ids->begin(), ids->end());
            }
          },
          description)
      ->allow_extra_args(false)
      ->type_name("IDS");
}

}  // namespace baton::cli
