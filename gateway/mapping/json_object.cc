#include "gateway/mapping/json_object.h"

#include <fmt/format.h>

#include <cmath>

namespace baton::gateway {

absl::StatusOr<JsonObject> JsonObject::Of(const Json& value, std::string where) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError(where.empty() ? "the body is not a JSON object"
                                                    : where + ": not a JSON object");
  }
  return JsonObject(value, std::move(where));
}

const Json* JsonObject::Find(std::string_view name) {
  read_.emplace(name);
  const auto found = value_.find(name);
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::optional<std::string>> JsonObject::Text(std::string_view name) {
  const Json* const value = Find(name);  // null: absent
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Wrong(name, "not a text");
  return value->get<std::string>();
}

absl::StatusOr<std::optional<double>> JsonObject::Number(std::string_view name) {
  const Json* const value = Find(name);  // null: absent
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return Wrong(name, "not a number");
  return value->get<double>();
}

absl::StatusOr<std::optional<int64_t>> JsonObject::Whole(std::string_view name, int64_t low, int64_t high) {
  const Json* const value = Find(name);  // null: absent
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : NAN;
  // 2^53: a double beyond it may stand for other whole numbers.
  const bool whole =
      value->is_number_integer() || (std::floor(number) == number && std::abs(number) <= 9007199254740992.0);
  if (!whole) return Wrong(name, "not a whole number");
  if (number < static_cast<double>(low) || number > static_cast<double>(high)) {
    return Wrong(name, fmt::format("must be in [{}, {}]", low, high));
  }
  return value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(number);
}

absl::StatusOr<std::optional<bool>> JsonObject::Flag(std::string_view name) {
  const Json* const value = Find(name);  // null: absent
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Wrong(name, "neither true nor false");
  return value->get<bool>();
}

absl::StatusOr<const Json*> JsonObject::List(std::string_view name) {
  const Json* const value = Find(name);  // null: absent
  if (value != nullptr && !value->is_array()) return Wrong(name, "not a list");
  return value;
}

void JsonObject::Skip(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.emplace(name);
}

std::vector<std::string> JsonObject::Ignored() const {
  std::vector<std::string> ignored;
  for (const auto& [name, value] : value_.items()) {
    if (!value.is_null() && !read_.contains(name)) ignored.push_back(Path(name));
  }
  return ignored;
}

std::string JsonObject::Path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

absl::Status JsonObject::Wrong(std::string_view name, std::string_view why) const {
  return absl::InvalidArgumentError(fmt::format("{}: {}", Path(name), why));
}

}  // namespace baton::gateway
