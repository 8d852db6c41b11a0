#include "router/api/model_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "text/utf8.h"

namespace baton::router {

namespace {

// Names are in requests, in metrics' labels and in lines of logs.
absl::Status CheckName(std::string_view name) {
  constexpr size_t kLongest = 256;
  if (name.empty()) return absl::InvalidArgumentError("a model has no name: give it one");
  const bool plain = std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 0x7F; });
  if (name.size() <= kLongest && plain && text::IsUtf8(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "the model's name {} is not one line of UTF-8 of at most {} bytes", Quoted(name), kLongest));
}

}  // namespace

ModelRegistry::ModelRegistry(std::vector<ServedModel> models) {
  models_.reserve(models.size());
  for (ServedModel& model : models) {
    const auto& added = models_.emplace_back(std::make_unique<const ServedModel>(std::move(model)));
    by_name_.emplace(added->name, added.get());
  }
}

absl::StatusOr<ModelRegistry> ModelRegistry::Create(std::vector<ServedModel> models) {
  if (models.empty()) return absl::InvalidArgumentError("no model to serve: give at least one model folder");
  absl::flat_hash_set<std::string_view> names;
  for (const ServedModel& model : models) {
    BATON_RETURN_IF_ERROR(CheckName(model.name));
    if (names.insert(model.name).second) continue;
    return absl::InvalidArgumentError(
        fmt::format("two models have the name {}: give each a name of its own", Quoted(model.name)));
  }
  return ModelRegistry(std::move(models));
}

absl::StatusOr<const ServedModel*> ModelRegistry::Find(std::string_view name) const {
  return FindFor(name, nullptr);
}

absl::StatusOr<const ServedModel*> ModelRegistry::Find(std::string_view name, const Tenant& tenant) const {
  return FindFor(name, &tenant);
}

absl::StatusOr<const ServedModel*> ModelRegistry::FindFor(std::string_view name, const Tenant* tenant) const {
  const auto may_use = [tenant](const ServedModel& model) {
    return tenant == nullptr || model.MayUse(*tenant);
  };
  if (!name.empty()) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end() && may_use(*found->second)) return found->second;
  }
  std::vector<const ServedModel*> usable;
  for (const auto& model : models_) {
    if (may_use(*model)) usable.push_back(model.get());
  }
  if (usable.empty()) {
    return absl::PermissionDeniedError(
        fmt::format("tenant {} may use no model of this router: tell the operator", Quoted(tenant->name)));
  }
  if (name.empty()) return usable.front();
  const std::string names = absl::StrJoin(usable, ", ", [](std::string* list, const ServedModel* model) {
    list->append(fmt::format("\"{}\"", model->name));
  });
  return rpc::WithReason(
      absl::NotFoundError(fmt::format("model: {} is not served here; use {}{}", Quoted(name),
                                      usable.size() == 1 ? "" : "one of ", names)),
      v1::REASON_MODEL_NOT_FOUND, {{"model", Shortened(name, kMaxQuotedBytes)}});
}

}  // namespace baton::router
