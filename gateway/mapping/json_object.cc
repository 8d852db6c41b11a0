#include "gateway/mapping/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace baton::gateway {
namespace {

// Names of members inside that are told: a header has no room for more.
constexpr size_t kMostInside = 64;

std::string WithoutIndices(const std::string& path) {
  std::string shown;
  bool index = false;
  for (const char c : path) {
    if (c == ']') index = false;
    if (!index) shown += c;
    if (c == '[') index = true;
  }
  return shown;
}

absl::Status NoObject(const std::string& where) {
  return absl::InvalidArgumentError(where.empty() ? "the body is not a JSON object"
                                                  : where + ": not a JSON object");
}

}  // namespace

absl::StatusOr<JsonObject> JsonObject::Of(const Json& value, std::string where) {
  if (!value.is_object()) return NoObject(where);
  return JsonObject(value, std::move(where), std::make_shared<Names>(), /*inner=*/false);
}

absl::StatusOr<JsonObject> JsonObject::Inside(const Json& value, std::string where) const {
  if (!value.is_object()) return NoObject(where);
  return JsonObject(value, std::move(where), inside_, /*inner=*/true);
}

JsonObject::~JsonObject() {
  if (inside_ == nullptr || !inner_) return;
  for (const std::string& path : NotRead()) {
    if (inside_->size() >= kMostInside) return;
    std::string name = WithoutIndices(path);
    if (std::ranges::find(*inside_, name) == inside_->end()) inside_->push_back(std::move(name));
  }
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

absl::StatusOr<const Json*> JsonObject::List(std::string_view name, size_t most) {
  const Json* const value = Find(name);  // null: absent
  if (value != nullptr && !value->is_array()) return Wrong(name, "not a list");
  if (value != nullptr && value->size() > most)
    return Wrong(name, fmt::format("{} of them; at most {} are taken", value->size(), most));
  return value;
}

void JsonObject::Skip(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.emplace(name);
}

std::vector<std::string> JsonObject::NotRead() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : value_.items()) {
    if (!value.is_null() && !read_.contains(name)) names.push_back(Path(name));
  }
  return names;
}

std::vector<std::string> JsonObject::Ignored() const {
  std::vector<std::string> ignored = NotRead();
  ignored.insert(ignored.end(), inside_->begin(), inside_->end());
  return ignored;
}

std::string JsonObject::Path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

absl::Status JsonObject::Wrong(std::string_view name, std::string_view why) const {
  return absl::InvalidArgumentError(fmt::format("{}: {}", Path(name), why));
}

}  // namespace baton::gateway
