#include "router/billing/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/quote.h"
#include "common/base/status.h"
#include "router/billing/decimal.h"
#include "text/config/json_fields.h"

namespace baton::router::billing {
namespace {

using model::Json;

struct Kind {
  const char* name;
  int64_t Price::*price;
};
constexpr Kind kKinds[] = {{"prompt", &Price::prompt},
                           {"cached", &Price::cached},
                           {"written_5m", &Price::written_5m},
                           {"written_1h", &Price::written_1h},
                           {"completion", &Price::completion}};

absl::Status Wrong(std::string_view where, std::string_view field, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("{}: field \"{}\" {}", where, field, problem));
}

absl::StatusOr<Price> ParsePrice(const Json& object, const std::string& currency, const std::string& where) {
  if (!object.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  for (const auto& [name, value] : object.items()) {
    const bool known = std::any_of(std::begin(kKinds), std::end(kKinds),
                                   [&name = name](const Kind& kind) { return name == kind.name; });
    if (!known) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: field {} is not known here; use prompt, cached, written_5m, written_1h, completion", where,
          Quoted(name)));
    }
  }
  Price price;
  price.currency = currency;
  for (const Kind& kind : kKinds) {
    const auto found = object.find(kind.name);
    if (found == object.end()) {
      return Wrong(where, kind.name, "is missing: no price is assumed, so all five have to be there");
    }
    if (!found->is_string()) {
      return Wrong(where, kind.name,
                   fmt::format("is {}, not text: write the price in quotation marks, so that no digit is "
                               "lost, such as \"0.075\"",
                               model::Shown(*found)));
    }
    const auto millionths = ParseMillionths(found->get_ref<const std::string&>());
    if (!millionths.ok()) {
      return Wrong(
          where, kind.name,
          fmt::format("is {} and {}", model::Shown(*found), std::string(millionths.status().message())));
    }
    price.*kind.price = *millionths;
  }
  return price;
}

}  // namespace

int64_t CostOf(const Price& price, const TokenCounts& counts) {
  return price.prompt * counts.plain + price.cached * counts.cached() + price.written_5m * counts.written_5m +
         price.written_1h * counts.written_1h + price.completion * counts.completion;
}

absl::Status CheckPrice(const Price& price, int64_t most_tokens) {
  int64_t dearest = 0;
  for (const Kind& kind : kKinds) dearest = std::max(dearest, price.*kind.price);
  const int64_t most = std::numeric_limits<int64_t>::max();
  if (dearest == 0 || most_tokens <= most / dearest) return absl::OkStatus();
  return absl::OutOfRangeError(fmt::format(
      "{} {} per million tokens is so much that a request of {} tokens could cost more than {} {}, which is "
      "the most that is counted: use a larger unit of money",
      FormatMillionths(dearest), price.currency, most_tokens, most / kPicosPerUnit, price.currency));
}

absl::StatusOr<PriceTable> PriceTable::Parse(std::string_view text, std::string_view file) {
  BATON_ASSIGN_OR_RETURN(const Json root, model::ParseJson(text, file));
  const std::string where(file);
  if (!root.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  for (const auto& [name, value] : root.items()) {
    if (name == "currency" || name == "models") continue;
    return absl::InvalidArgumentError(
        fmt::format("{}: field {} is not known here; use currency, models", where, Quoted(name)));
  }
  const auto currency = root.find("currency");
  if (currency == root.end()) return Wrong(where, "currency", "is missing");
  const std::string* const code = currency->get_ptr<const std::string*>();
  if (code == nullptr || code->size() != 3 ||
      !std::all_of(code->begin(), code->end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
    return Wrong(where, "currency", "is not the code of a currency: three capital letters, such as \"EUR\"");
  }
  const auto models = root.find("models");
  if (models == root.end()) return Wrong(where, "models", "is missing");
  if (!models->is_object()) return Wrong(where, "models", "is not an object of prices by model");
  PriceTable table;
  for (const auto& [name, object] : models->items()) {
    BATON_ASSIGN_OR_RETURN(Price price,
                           ParsePrice(object, *code, fmt::format("{}: models.{}", where, Quoted(name))));
    table.models_.emplace(name, std::move(price));
  }
  return table;
}

const Price* PriceTable::Find(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second;
}

}  // namespace baton::router::billing
