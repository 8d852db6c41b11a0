// ModelRegistry: the models that a router serves, by the names that requests use. The first one is the
// default: a request that names no model gets it. Filled once, at the router's start, and immutable from then
// on; it outlives every request, so that a request may keep a reference to its model. Any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "router/api/served_model.h"

namespace baton::router {

class ModelRegistry {
 public:
  // INVALID_ARGUMENT if there is no model, if one has no name, or if two have the same name.
  static absl::StatusOr<ModelRegistry> Create(std::vector<ServedModel> models);

  // The model that a request means by `name`; an empty name means the default. NOT_FOUND, with the names that
  // are served, if there is no such model. The model lives as long as the registry, also when that is moved.
  absl::StatusOr<const ServedModel*> Find(std::string_view name) const;
  // The same for this tenant: models that it may not use are not there, and its default is the first that it
  // may use. PERMISSION_DENIED if it may use none.
  absl::StatusOr<const ServedModel*> Find(std::string_view name, const Tenant& tenant) const;
  // Names that model in a request that names none, if its default is another than the registry's. OK, or what
  // Find says.
  template <typename Request>
  absl::Status Resolve(const Tenant& tenant, Request* request) const {
    const auto found = Find(request->model(), tenant);
    if (!found.ok()) return found.status();
    if (request->model().empty() && *found != &default_model()) request->set_model((*found)->name);
    return absl::OkStatus();
  }

  const ServedModel& default_model() const { return *models_.front(); }
  // In the order in which they were given: the default is the first.
  const std::vector<std::unique_ptr<const ServedModel>>& models() const { return models_; }

 private:
  explicit ModelRegistry(std::vector<ServedModel> models);
  // tenant null: anyone.
  absl::StatusOr<const ServedModel*> FindFor(std::string_view name, const Tenant* tenant) const;

  std::vector<std::unique_ptr<const ServedModel>> models_;  // at least one
  absl::flat_hash_map<std::string_view, const ServedModel*> by_name_;
};

}  // namespace baton::router
