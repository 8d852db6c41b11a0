#include "router/api/classifiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/base/quote.h"
#include "common/base/status.h"
#include "protocol/client/token_ids.h"
#include "router/api/conversation.h"
#include "router/moderation/text.h"

namespace baton::router {
namespace {

using moderation::Policy;

// Bytes kept of the message that an answer is judged with.
constexpr size_t kMostQuestionBytes = 4096;

absl::StatusOr<Policy> PolicyOf(const v1::Moderation& asked, Policy otherwise) {
  switch (asked.policy()) {
    case v1::Moderation::POLICY_UNSPECIFIED:
      return otherwise;
    case v1::Moderation::POLICY_OFF:
      return Policy::kOff;
    case v1::Moderation::POLICY_SCORE:
      return Policy::kScore;
    case v1::Moderation::POLICY_BLOCK:
      return Policy::kBlock;
    default:
      return absl::InvalidArgumentError(
          fmt::format("options.moderation.policy: {} is none", static_cast<int>(asked.policy())));
  }
}

std::string_view NameOf(Policy policy) {
  return policy == Policy::kBlock ? "POLICY_BLOCK" : policy == Policy::kScore ? "POLICY_SCORE" : "POLICY_OFF";
}

void SetQuestion(std::string_view question, ModerationPlan* plan) {
  const size_t most = std::min(kMostQuestionBytes, plan->moderator->room() / 4);
  plan->question = moderation::Tail(question, most);
}

}  // namespace

absl::StatusOr<moderation::Moderator*> Classifiers::Find(std::string_view name,
                                                         std::string_view field) const {
  if (moderators_.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: this router serves no classifier (docs/moderation.md)", field));
  }
  if (name.empty()) return moderators_.front().get();
  for (const auto& moderator : moderators_) {
    if (moderator->name() == name) return moderator.get();
  }
  return absl::InvalidArgumentError(
      fmt::format("{}: {} is no classifier that is served here (ListModels)", field, Quoted(name)));
}

absl::Status Classifiers::CheckNone(std::string_view model) const {
  const auto found = models_.Find(model);
  if (!found.ok() || (*found)->classifier == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "model: \"{}\" is a classifier: use Moderate, or name it in options.moderation", (*found)->name));
}

absl::StatusOr<std::optional<ModerationPlan>> Classifiers::Plan(const Classifiers* classifiers,
                                                                const v1::Moderation& asked,
                                                                const Tenant& tenant) {
  const moderation::Rules rules =
      classifiers != nullptr ? classifiers->RulesOf(tenant) : tenant.moderation.value_or(moderation::Rules());
  BATON_ASSIGN_OR_RETURN(const Policy policy, PolicyOf(asked, rules.policy));
  if (policy < rules.policy) {
    return absl::PermissionDeniedError(
        fmt::format("options.moderation.policy: {} is less than {}, which tenant \"{}\" has to have",
                    NameOf(policy), NameOf(rules.policy), tenant.name));
  }
  if (policy == Policy::kOff) return std::nullopt;
  const bool served = classifiers != nullptr && !classifiers->moderators_.empty();
  if (!served && rules.policy != Policy::kOff) {
    return absl::FailedPreconditionError(fmt::format(
        "tenant \"{}\" has to have its answers moderated, and this router serves no classifier: tell the "
        "operator",
        tenant.name));
  }
  if (!served) {
    return absl::InvalidArgumentError(
        "options.moderation: this router serves no classifier (docs/moderation.md)");
  }
  ModerationPlan plan;
  BATON_ASSIGN_OR_RETURN(plan.moderator, classifiers->Find(asked.model(), "options.moderation.model"));
  if (rules.policy != Policy::kOff && plan.moderator != classifiers->moderators_.front().get()) {
    return absl::PermissionDeniedError(
        fmt::format("options.moderation.model: tenant \"{}\" has to have the classifier \"{}\"", tenant.name,
                    classifiers->moderators_.front()->name()));
  }
  plan.policy = policy;
  plan.fail_open = rules.fail_open;
  plan.timeout = rules.timeout;
  if (asked.input() || rules.input) plan.input = "";
  return plan;
}

void SetTexts(const v1::GenerateRequest& request, const ServedModel& model, ModerationPlan* plan) {
  std::string prompt = request.text();
  if (request.has_token_ids()) {
    std::vector<TokenId> tokens = protocol::TokensOf(request.token_ids().ids());
    // Ids beyond the tokenizer's, which a padded vocabulary has, say nothing.
    std::erase_if(tokens, [&](TokenId id) { return id.value() >= model.tokenizer->vocabulary(); });
    prompt = model.tokenizer->Decode(tokens, false).value_or("");
  }
  SetQuestion(prompt, plan);
  if (plan->input.has_value()) plan->input = std::move(prompt);
}

void SetTexts(const v1::ChatRequest& request, const ServedModel&, ModerationPlan* plan) {
  const auto& messages = request.conversation().messages();
  std::string question;
  const auto user = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const v1::Message& message) { return message.role() == "user"; });
  if (user != messages.rend()) question = ContentOf(*user);
  // The beginning of the answer is the client's, too.
  if (request.conversation().continue_last()) question += "\n\n" + ContentOf(*messages.rbegin());
  if (!question.empty()) SetQuestion(question, plan);
  if (!plan->input.has_value()) return;
  std::string& input = *plan->input;
  for (const v1::Message& message : messages) {
    if (!message.reasoning_content().empty()) input += message.reasoning_content() + "\n\n";
    input += ContentOf(message);
    for (const v1::ToolCall& call : message.tool_calls()) {
      input += "\n" + call.name() + "\n" + call.arguments_json();
    }
    input += "\n\n";
  }
}

}  // namespace baton::router
