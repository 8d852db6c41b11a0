#include "text/config/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "common/base/lfs_pointer.h"
#include "common/base/status.h"
#include "common/json/strict_json.h"

namespace baton::model {

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view file) {
  absl::StatusOr<Json> json = json::Parse<Json>(text);
  if (json.ok()) return json;
  return absl::InvalidArgumentError(fmt::format("{}: {}", file, std::string(json.status().message())));
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit) {
  std::error_code failure;
  const std::filesystem::file_status kind = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(kind))
    return absl::NotFoundError(fmt::format("{}: there is no such file", path));
  if (!std::filesystem::is_regular_file(kind)) {
    return absl::InvalidArgumentError(fmt::format("{}: not a regular file", path));
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::UnavailableError(fmt::format("{}: can't be opened", path));
  const int64_t size = file.tellg();
  if (size > limit) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} bytes, more than the {} allowed", path, size, limit));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) return absl::UnavailableError(fmt::format("{}: can't be read", path));
  BATON_RETURN_IF_ERROR(RefuseLfsPointer(path, text));
  return text;
}

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    status_ = absl::InvalidArgumentError(fmt::format("{}: not a JSON object but {}", where_, Shown(object)));
  }
}

bool JsonFields::Has(std::string_view name) const { return Find(name) != nullptr; }

bool JsonFields::Present(std::string_view name) const {
  read_.emplace(name);
  return object_.is_object() && object_.contains(name);
}

const Json* JsonFields::Find(std::string_view name) const {
  read_.emplace(name);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* JsonFields::Required(std::string_view name, bool has_fallback) {
  const Json* value = Find(name);
  if (value == nullptr && !has_fallback) Refuse(name, "is missing");
  return value;
}

int64_t JsonFields::Integer(std::string_view name, int64_t low, int64_t high,
                            std::optional<int64_t> fallback) {
  const Json* value = Required(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or(low);
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
                    value->get<int64_t>() >= low && value->get<int64_t>() <= high;
  if (!fits) {
    Refuse(name, fmt::format("must be an integer from {} to {}, not {}", low, high, Shown(*value)));
    return low;
  }
  return value->get<int64_t>();
}

double JsonFields::Number(std::string_view name, Range range, std::optional<double> fallback) {
  const Json* value = Required(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or(1);
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  const bool fits = std::isfinite(number) && number <= range.high &&
                    (range.low_open ? number > range.low : number >= range.low);
  if (!fits) {
    Refuse(name,
           fmt::format("must be a number {}{} and at most {}, not {}",
                       range.low_open ? "above " : "of at least ", range.low, range.high, Shown(*value)));
    return 1;
  }
  return number;
}

bool JsonFields::Flag(std::string_view name, std::optional<bool> fallback) {
  const Json* value = Required(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or(false);
  if (!value->is_boolean()) {
    Refuse(name, fmt::format("must be true or false, not {}", Shown(*value)));
    return false;
  }
  return value->get<bool>();
}

std::string JsonFields::Text(std::string_view name, std::optional<std::string> fallback) {
  const Json* value = Required(name, fallback.has_value());
  if (value == nullptr) return fallback.value_or("");
  if (!value->is_string()) {
    Refuse(name, fmt::format("must be a string, not {}", Shown(*value)));
    return "";
  }
  return value->get<std::string>();
}

std::vector<int64_t> JsonFields::Integers(std::string_view name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) return {Integer(name, low, high)};
  std::vector<int64_t> numbers;
  for (const Json& item : *value) {
    const bool integer =
        item.is_number_integer() && !(item.is_number_unsigned() && item.get<uint64_t>() >> 63);
    if (!integer || item.get<int64_t>() < low || item.get<int64_t>() > high) {
      Refuse(name, fmt::format("must hold integers from {} to {}, not {}", low, high, Shown(item)));
      return {};
    }
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

void JsonFields::Refuse(std::string_view name, std::string_view problem) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(fmt::format("{}: field \"{}\" {}", where_, name, problem));
  }
}

}  // namespace baton::model
