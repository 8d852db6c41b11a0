#include "common/json/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/base/quote.h"

namespace baton::json {
namespace {

constexpr int kNumberOverflow = 406;  // the library's id of that error

// Takes the parser's events and builds the value. The library's own builder looks each key up in the whole
// object, which is quadratic for ordered_json, and keeps the last of two equal keys.
template <typename Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  Builder(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return Add(value) != nullptr; }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) {
      return Refuse(fmt::format("key {} stands twice in one object", Quoted(name)));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::string_view before = text_.substr(0, position);
    return Refuse(
        fmt::format("{} at byte {}, in line {}",
                    error.id == kNumberOverflow ? "a number that no double holds" : "not valid JSON",
                    position, 1 + std::count(before.begin(), before.end(), '\n')));
  }

  absl::StatusOr<Json> Take() {
    if (!refusal_.empty()) return absl::InvalidArgumentError(refusal_);
    return std::move(root_);
  }
  int64_t values() const { return values_; }

 private:
  struct Container {
    Json* value;
    absl::flat_hash_set<std::string> keys;
  };

  bool Refuse(std::string why) {
    if (refusal_.empty()) refusal_ = std::move(why);
    return false;
  }

  // Null if there are too many values.
  Json* Add(Json value) {
    if (++values_ > limits_.values) {
      Refuse(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    const bool costly = value.is_structured() || (!open_.empty() && open_.back().value->is_object());
    if (costly && ++members_ > limits_.members) {
      Refuse(fmt::format("more than {} objects, lists and members", limits_.members));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& list = parent.template get_ref<typename Json::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    auto& object = parent.template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      typename Json::object_t::Container& members = object;  // emplace() of the map itself would search
      members.emplace_back(std::move(key_), std::move(value));
      return &members.back().second;
    } else {
      return &object.emplace(std::move(key_), std::move(value)).first->second;
    }
  }

  bool Open(Json empty) {
    if (static_cast<int>(open_.size()) >= limits_.depth) {
      return Refuse(fmt::format("nested more than {} deep", limits_.depth));
    }
    Json* const added = Add(std::move(empty));
    if (added == nullptr) return false;
    open_.push_back({added, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view text_;
  const Limits limits_;
  Json root_;
  std::vector<Container> open_;  // from the outermost in
  std::string key_;              // of the member that comes next
  int64_t values_ = 0;
  int64_t members_ = 0;
  std::string refusal_;
};

}  // namespace

template <typename Json>
absl::StatusOr<Json> Parse(std::string_view text, const Limits& limits, int64_t* values) {
  // The library takes a NUL for the text's end, and reads nothing behind it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const std::string_view before = text.substr(0, nul);
    return absl::InvalidArgumentError(fmt::format("not valid JSON at byte {}, in line {}", nul + 1,
                                                  1 + std::count(before.begin(), before.end(), '\n')));
  }
  Builder<Json> builder(text, limits);
  Json::sax_parse(text, &builder);
  if (values != nullptr) *values = builder.values();
  return builder.Take();
}

template absl::StatusOr<nlohmann::json> Parse(std::string_view, const Limits&, int64_t*);
template absl::StatusOr<nlohmann::ordered_json> Parse(std::string_view, const Limits&, int64_t*);

void Append(nlohmann::ordered_json* object, std::string key, nlohmann::ordered_json value) {
  nlohmann::ordered_json::object_t::Container& members = object->get_ref<nlohmann::ordered_json::object_t&>();
  members.emplace_back(std::move(key), std::move(value));
}

}  // namespace baton::json
