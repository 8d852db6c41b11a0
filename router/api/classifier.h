// Classifier: a moderation::Moderator that is a model of this router. A verdict is one request of the
// router's own for each question of the model's format, on the way of any other: executor, admission,
// placement, decode worker; as a tenant of its own, apart from the clients' limits, with the most verdicts at
// a time that `tenant` allows. Requests for one answer share its beginning, which the classifier's workers
// have in their cache. Any thread.
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
  // A verdict that takes longer is given up.
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  // Verdicts that one router asks for at a time; more wait.
  static constexpr int64_t kConcurrency = 64;

  // `context` is internal. `model` is a classifier. All outlive it.
  Classifier(const CallContext& context, const ServedModel& model, std::shared_ptr<const Tenant> tenant,
             moderation::Probe& probe)
      : context_(context), model_(model), tenant_(std::move(tenant)), probe_(probe) {}

  const std::string& name() const override { return model_.name; }
  size_t room() const override { return model_.classifier_room; }
  std::shared_ptr<moderation::Judgement> Judge(moderation::Passage passage, absl::Time deadline,
                                               const telemetry::TraceContext& trace, Callback done) override;

 private:
  const CallContext& context_;
  const ServedModel& model_;
  const std::shared_ptr<const Tenant> tenant_;
  moderation::Probe& probe_;
};

}  // namespace baton::router
