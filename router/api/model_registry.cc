#include "router/api/model_registry.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "common/base/quote.h"

namespace baton::router {

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
    if (model.name.empty()) return absl::InvalidArgumentError("a model has no name: give it one");
    if (names.insert(model.name).second) continue;
    return absl::InvalidArgumentError(
        fmt::format("two models have the name {}: give each a name of its own", Quoted(model.name)));
  }
  return ModelRegistry(std::move(models));
}

absl::StatusOr<const ServedModel*> ModelRegistry::Find(std::string_view name) const {
  if (name.empty()) return models_.front().get();
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  const std::string names = absl::StrJoin(models_, ", ", [](std::string* list, const auto& model) {
    list->append(fmt::format("\"{}\"", model->name));
  });
  return absl::NotFoundError(fmt::format("model: {} is not served here; use {}{}", Quoted(name),
                                         models_.size() == 1 ? "" : "one of ", names));
}

}  // namespace baton::router
