#include "gateway/mapping/warnings.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"

namespace baton::gateway {

void AddWarnings(const v1::Finished& finished, Json* shown) {
  if (finished.warnings().empty()) return;
  Json list = Json::array();
  for (const v1::Warning& warning : finished.warnings()) {
    // A router of a newer release may have kinds that are not known here.
    const std::string name =
        v1::Warning::Kind_IsValid(warning.kind()) ? v1::Warning::Kind_Name(warning.kind()) : "KIND_OTHER";
    list.push_back({{"kind", absl::AsciiStrToLower(name.substr(std::size("KIND_") - 1))},
                    {"count", warning.count()},
                    {"message", warning.message()}});
  }
  (*shown)["warnings"] = std::move(list);
}

}  // namespace baton::gateway
