// The moderation stage's questions to a classifier, and its verdicts. The classifier itself is behind the
// Moderator: a model that this router serves (router/api/classifier.h), a test's script otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/generation.pb.h"
#include "common/telemetry/trace_context.h"

namespace baton::router {
struct Tenant;
}

namespace baton::router::moderation {

struct Passage {
  // The judged text: a user's message, or an answer to one.
  std::string text;
  bool answer = true;
  // For an answer, the message that it answers, as far as it is known.
  std::string question;
};

struct Category {
  std::string name;
  double score = 0;  // 0 to 1
};

struct Verdict {
  bool flagged = false;
  // The harms found, if it is flagged; else the categories asked for by name, if any, with low scores.
  std::vector<Category> categories;
  // That the classifier read and wrote.
  int64_t tokens = 0;
};

// Adds a verdict to what a client hears: the categories are of the last that found something, else the last.
void AddVerdict(const Verdict& verdict, v1::ModerationResult* result);

// A verdict that is on its way. Any thread.
class Judgement {
 public:
  virtual ~Judgement() = default;
  // It is not wanted any more. Again, or late, does nothing. The callback may still come.
  virtual void Cancel() = 0;
};

class Moderator {
 public:
  using Callback = std::function<void(absl::StatusOr<Verdict>)>;

  virtual ~Moderator() = default;
  // The classifier's name among the models.
  virtual const std::string& name() const = 0;
  // Bytes of text and question together that a passage may have.
  virtual size_t room() const = 0;
  // `done` exactly once, on any thread, possibly before Judge returns. An error: there is no verdict, and it
  // says why. The verdict takes its turn as one of `tenant`, and meets no KV but that of its texts.
  // `deadline`, on the router's clock: it is given up then.
  virtual std::shared_ptr<Judgement> Judge(Passage passage, const Tenant& tenant, absl::Time deadline,
                                           const telemetry::TraceContext& trace, Callback done) = 0;
};

}  // namespace baton::router::moderation
