// JsonObject: reads the members of a JSON object by name and type, and knows afterwards which of them nobody
// asked for, also in objects inside it. A member that is null counts as absent, as clients' libraries mean
// it. Errors are INVALID_ARGUMENT and begin with the path of the member: "messages[3].content: ...". One
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
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

// Messages, or items, of one request: more than any model's context has room for.
inline constexpr size_t kMaxMessages = 20000;
// Max count of tokens, and max token id.
inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

class JsonObject {
 public:
  // `value` outlives it. `where`: its path, empty for the whole body.
  static absl::StatusOr<JsonObject> Of(const Json& value, std::string where);
  // An object inside this one. What nobody has asked for when it ends is among this one's ignored.
  absl::StatusOr<JsonObject> Inside(const Json& value, std::string where) const;

  JsonObject(JsonObject&&) = default;
  ~JsonObject();

  // Null: it is absent.
  const Json* Find(std::string_view name);
  absl::StatusOr<std::optional<std::string>> Text(std::string_view name);
  absl::StatusOr<std::optional<double>> Number(std::string_view name);
  absl::StatusOr<std::optional<int64_t>> Whole(std::string_view name, int64_t low, int64_t high);
  absl::StatusOr<std::optional<bool>> Flag(std::string_view name);
  // Null: it is absent. A list otherwise, of at most so many values.
  absl::StatusOr<const Json*> List(std::string_view name, size_t most = std::numeric_limits<size_t>::max());

  // Asked for, and without effect here: it is in no way wrong, and not among the ignored.
  void Skip(std::initializer_list<std::string_view> names);
  // The members that are not null and that nobody asked for, and after them those of objects inside, without
  // indices, each name once: "messages[].name".
  std::vector<std::string> Ignored() const;

  std::string Path(std::string_view name) const;
  absl::Status Wrong(std::string_view name, std::string_view why) const;

 private:
  // Ignored members of objects inside the body.
  using Names = std::vector<std::string>;

  JsonObject(const Json& value, std::string where, std::shared_ptr<Names> inside, bool inner)
      : value_(value), where_(std::move(where)), inside_(std::move(inside)), inner_(inner) {}
  std::vector<std::string> NotRead() const;

  const Json& value_;
  const std::string where_;
  std::shared_ptr<Names> inside_;  // shared with objects inside; null once moved from
  const bool inner_;               // it is one of them
  absl::flat_hash_set<std::string> read_;
};

}  // namespace baton::gateway
