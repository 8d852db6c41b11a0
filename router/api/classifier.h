// Classifier: a moderation::Moderator that is a model of this router. A verdict is one request of the
// router's own for each question of the model's format, on the way of any other: executor, admission,
// placement, decode worker; in a lane of the classifier's queue for each tenant, apart from the tenant's
// limits. Requests for one answer share its beginning, which the classifier's workers have in their cache,
// under the tenant's salt. Any thread.
#pragma once

#include <memory>
#include <string>

#include "router/api/request_driver.h"
#include "router/api/served_model.h"
#include "router/moderation/classifier_format.h"
#include "router/moderation/probe.h"
#include "router/moderation/verdict.h"

namespace baton::router {

class Classifier final : public moderation::Moderator {
 public:
  // Verdicts that one router asks for at a time for one tenant; more wait, and other tenants' do not.
  static constexpr int64_t kConcurrency = 64;

  // As whom the verdicts for `tenant` are asked for. The dispatcher of the classifier's workers has to know
  // it.
  static Tenant LaneOf(const Tenant& tenant);

  // `context` is internal. `model` is a classifier. All outlive it.
  Classifier(const CallContext& context, const ServedModel& model, moderation::Probe& probe)
      : context_(context), model_(model), probe_(probe) {}

  const std::string& name() const override { return model_.name; }
  size_t room() const override { return model_.classifier_room; }
  std::shared_ptr<moderation::Judgement> Judge(moderation::Passage passage, const Tenant& tenant,
                                               absl::Time deadline, const telemetry::TraceContext& trace,
                                               Callback done) override;

 private:
  const CallContext& context_;
  const ServedModel& model_;
  moderation::Probe& probe_;
};

}  // namespace baton::router
