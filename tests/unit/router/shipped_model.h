// The shipped model's template and tokenizer, as a router has them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "router/api/model_registry.h"

namespace baton::router {

inline ModelRegistry ShippedModel() {
  auto model = ServedModel::Load(std::string(BATON_SOURCE_DIR) + "/models/baton-tiny", "tiny");
  BATON_CHECK(model.ok()) << model.status();
  std::vector<ServedModel> models;
  models.push_back(*std::move(model));
  auto registry = ModelRegistry::Create(std::move(models));
  BATON_CHECK(registry.ok()) << registry.status();
  return *std::move(registry);
}

}  // namespace baton::router
