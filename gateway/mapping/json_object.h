// JsonObject: reads the members of a JSON object by name and type, and knows afterwards which of them nobody
// asked for. A member that is null counts as absent, as clients' libraries mean it. Errors are
// INVALID_ARGUMENT and begin with the path of the member: "messages[3].content: ...". One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

namespace baton::gateway {

// The order of members is kept: it is part of a tool's schema.
using Json = nlohmann::ordered_json;

class JsonObject {
 public:
  // `value` outlives it. `where`: its path, empty for the whole body.
  static absl::StatusOr<JsonObject> Of(const Json& value, std::string where);

  // Null: it is absent.
  const Json* Find(std::string_view name);
  absl::StatusOr<std::optional<std::string>> Text(std::string_view name);
  absl::StatusOr<std::optional<double>> Number(std::string_view name);
  absl::StatusOr<std::optional<int64_t>> Whole(std::string_view name, int64_t low, int64_t high);
  absl::StatusOr<std::optional<bool>> Flag(std::string_view name);
  // Null: it is absent. A list otherwise.
  absl::StatusOr<const Json*> List(std::string_view name);

  // Asked for, and without effect here: it is in no way wrong, and not among the ignored.
  void Skip(std::initializer_list<std::string_view> names);
  // The members that are not null and that nobody asked for.
  std::vector<std::string> Ignored() const;

  std::string Path(std::string_view name) const;
  absl::Status Wrong(std::string_view name, std::string_view why) const;

 private:
  JsonObject(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  const Json& value_;
  const std::string where_;
  absl::flat_hash_set<std::string> read_;
};

}  // namespace baton::gateway
