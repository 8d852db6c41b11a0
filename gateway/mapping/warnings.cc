#include "gateway/mapping/warnings.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"

namespace baton::gateway {

void AddWarnings(const v1::Finished& finished, Json* shown) {
  constexpr std::string_view kKind = "KIND_";
  if (finished.warnings().empty()) return;
  Json list = Json::array();
  for (const v1::Warning& warning : finished.warnings()) {
    list.push_back(
        {{"kind", absl::AsciiStrToLower(v1::Warning::Kind_Name(warning.kind()).substr(kKind.size()))},
         {"count", warning.count()},
         {"message", warning.message()}});
  }
  (*shown)["warnings"] = std::move(list);
}

}  // namespace baton::gateway
