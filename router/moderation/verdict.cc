#include "router/moderation/verdict.h"

namespace baton::router::moderation {

void AddVerdict(const Verdict& verdict, v1::ModerationResult* result) {
  result->set_verdicts(result->verdicts() + 1);
  if (result->flagged() && !verdict.flagged) return;
  result->set_flagged(verdict.flagged);
  result->clear_categories();
  for (const Category& category : verdict.categories) {
    v1::ModerationCategory* const added = result->add_categories();
    added->set_name(category.name);
    added->set_score(static_cast<float>(category.score));
  }
}

}  // namespace baton::router::moderation
