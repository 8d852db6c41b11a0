// JsonFields: a JSON object read strictly, field by field. The first thing that is missing, of the wrong type
// or out of range is kept as the status, named with its file and field; later reads return harmless values,
// so a caller reads everything and looks once. ParseJson is the strict reader of common/json with the file's
// name in its errors. Neither throws. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::model {

using Json = nlohmann::json;

// `file` is for messages.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view file);

// The whole of a file that is at most `limit` bytes. NOT_FOUND names the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit);

class JsonFields {
 public:
  // `object` must outlive this. `where` opens messages: "config.json", or "config.json: rope_scaling".
  JsonFields(const Json& object, std::string where);

  // True if the field is there and not null.
  bool Has(std::string_view name) const;
  // True if the field is there, null or not.
  bool Present(std::string_view name) const;
  const Json* Find(std::string_view name) const;
  // Any of the methods here was asked for it.
  bool WasRead(std::string_view name) const { return read_.contains(name); }

  // Without a default, a missing or null field is an error.
  int64_t Integer(std::string_view name, int64_t low, int64_t high, std::optional<int64_t> fallback = {});
  // Finite, at least `low`, more than `low` if `open`.
  struct Range {
    double low = 0;
    double high = 1e30;
    bool low_open = false;
  };
  double Number(std::string_view name, Range range, std::optional<double> fallback = {});
  bool Flag(std::string_view name, std::optional<bool> fallback = {});
  std::string Text(std::string_view name, std::optional<std::string> fallback = {});
  // An integer, a list of integers, or nothing.
  std::vector<int64_t> Integers(std::string_view name, int64_t low, int64_t high);

  // Keeps the first error. `problem` follows "FILE: field "NAME" ".
  void Refuse(std::string_view name, std::string_view problem);

  const absl::Status& status() const { return status_; }

 private:
  const Json* Required(std::string_view name, bool has_fallback);

  const Json& object_;
  std::string where_;
  absl::Status status_;
  mutable std::set<std::string, std::less<>> read_;
};

// A value as it stands in the file, shortened, for messages.
std::string Shown(const Json& value);

}  // namespace baton::model
