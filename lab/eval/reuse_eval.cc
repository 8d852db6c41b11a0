#include "lab/eval/reuse_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <utility>

#include "common/base/status.h"
#include "common/json/strict_json.h"
#include "engine/solo.h"
#include "lab/eval/divergence.h"
#include "nlohmann/json.hpp"
#include "protocol/client/token_ids.h"
#include "router/api/request_preparer.h"
#include "router/api/reusable_parts.h"
#include "text/tokenizer.h"

namespace baton::lab {
namespace {

constexpr size_t kMostLineBytes = 16 << 20;
constexpr size_t kMostQuestions = 100'000;

// Empty: it has no such text.
std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

absl::StatusOr<ReuseQuestion> ParseQuestion(const std::string& line) {
  BATON_ASSIGN_OR_RETURN(const auto json, json::Parse<nlohmann::json>(line));
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  ReuseQuestion question{.conversation = {}, .expected = TextOf(json, "expected")};
  if (question.expected.empty()) return absl::InvalidArgumentError("\"expected\" is missing");
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array() || messages->empty()) {
    return absl::InvalidArgumentError("\"messages\" is missing");
  }
  for (const auto& message : *messages) {
    if (!message.is_object()) return absl::InvalidArgumentError("a message is not an object");
    v1::Message& made = *question.conversation.add_messages();
    made.set_role(TextOf(message, "role"));
    made.set_content(TextOf(message, "content"));
    const auto parts = message.find("parts");
    if (parts == message.end()) continue;
    if (!parts->is_array()) return absl::InvalidArgumentError("\"parts\" is not a list");
    for (const auto& part : *parts) {
      if (!part.is_object()) return absl::InvalidArgumentError("a part is not an object");
      v1::ContentPart& piece = *made.add_parts();
      piece.set_text(TextOf(part, "text"));
      const auto reusable = part.find("reusable");
      piece.set_reusable(reusable != part.end() && reusable->is_boolean() && reusable->get<bool>());
    }
  }
  return question;
}

// Asks questions, with spans reused or without.
struct Asker {
  engine::Engine& engine;
  const router::ServedModel& model;
  int64_t max_tokens;

  struct Answer {
    engine::SoloRun run;
    std::vector<std::vector<float>> logits;  // of each token
  };
  absl::StatusOr<Answer> Ask(std::span<const TokenId> prompt, std::vector<kv::ReusableSpan> spans) const {
    Answer answer;
    BATON_ASSIGN_OR_RETURN(
        answer.run, engine::GenerateSolo(engine, prompt, {.temperature = 0}, max_tokens, engine.config().eos,
                                         512, std::move(spans), [&answer](std::span<const float> logits) {
                                           answer.logits.emplace_back(logits.begin(), logits.end());
                                         }));
    return answer;
  }
  absl::StatusOr<std::string> Text(const Answer& answer) const {
    return model.tokenizer->Decode(answer.run.tokens, /*special_tokens=*/false);
  }
};

// In the mean over the tokens that both drew after the same ones.
double MeanDivergence(const Asker::Answer& full, const Asker::Answer& reused) {
  const std::vector<TokenId>& a = full.run.tokens;
  const std::vector<TokenId>& b = reused.run.tokens;
  const auto same = std::ranges::mismatch(a, b).in1 - a.begin();
  const auto compared = std::min(std::min(std::ssize(a), std::ssize(b)), same + 1);
  double sum = 0;
  for (int64_t i = 0; i < compared; ++i) {
    sum += Divergence(full.logits[static_cast<size_t>(i)], reused.logits[static_cast<size_t>(i)]);
  }
  return sum / static_cast<double>(std::max<int64_t>(1, compared));
}

absl::Status AddQuestion(const Asker& asker, const router::RequestPreparer& preparer,
                         const ReuseQuestion& question, ReuseEvalResult* result) {
  v1::ChatRequest request;
  *request.mutable_conversation() = question.conversation;
  request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(asker.max_tokens));
  BATON_RETURN_IF_ERROR(preparer.Check(request));
  BATON_ASSIGN_OR_RETURN(const router::Prepared prepared,
                         preparer.Prepare(request, router::Tenant{.salt = kv::TenantSalt("")}));
  const auto spans = router::ReusableSpansOf(prepared.request);
  if (spans.empty()) {
    return absl::InvalidArgumentError("no part is marked as reusable, or none has 32 tokens");
  }
  const std::vector<TokenId> prompt = protocol::TokensOf(prepared.request.token_ids());
  BATON_ASSIGN_OR_RETURN(const Asker::Answer full, asker.Ask(prompt, {}));
  BATON_ASSIGN_OR_RETURN(const Asker::Answer reused, asker.Ask(prompt, spans));
  BATON_ASSIGN_OR_RETURN(const std::string full_text, asker.Text(full));
  BATON_ASSIGN_OR_RETURN(const std::string reused_text, asker.Text(reused));
  worker::ChunkGate::Measured& sums = result->gate.measured;
  ++sums.questions;
  sums.kl += MeanDivergence(full, reused);
  sums.exact_match += full.run.tokens == reused.run.tokens ? 1 : 0;
  sums.recall_full += Says(full_text, question.expected) ? 1 : 0;
  sums.recall_reused += Says(reused_text, question.expected) ? 1 : 0;
  result->prompt_tokens += std::ssize(prompt);
  result->approximate_tokens += kv::LandedTokens(spans);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ReuseQuestion>> ReadReuseQuestions(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(fmt::format("{}: can't be read", path));
  std::vector<ReuseQuestion> questions;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    const auto invalid = [&](std::string_view why) {
      return absl::InvalidArgumentError(fmt::format("{}, line {}: {}", path, number, why));
    };
    if (line.size() > kMostLineBytes) return invalid("too long");
    if (questions.size() >= kMostQuestions) return invalid("too many questions");
    auto question = ParseQuestion(line);
    if (!question.ok()) return invalid(std::string(question.status().message()));
    questions.push_back(*std::move(question));
  }
  if (questions.empty()) return absl::InvalidArgumentError(fmt::format("{}: no question in it", path));
  return questions;
}

bool Says(std::string_view answer, std::string_view expected) {
  const auto lower = [](std::string_view text) {
    std::string made(text);
    for (char& c : made) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return made;
  };
  const std::string text = lower(answer), word = lower(expected);
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t after = at + word.size();
    if ((at == 0 || !part(text[at - 1])) && (after == text.size() || !part(text[after]))) return true;
  }
  return false;
}

absl::StatusOr<ReuseEvalResult> EvaluateReuse(const std::vector<ReuseQuestion>& questions,
                                              const ReuseEvalOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto served, router::ServedModel::Load(options.engine.model_folder, "model"));
  std::vector<router::ServedModel> models;
  models.push_back(std::move(served));
  BATON_ASSIGN_OR_RETURN(const router::ModelRegistry registry,
                         router::ModelRegistry::Create(std::move(models)));
  const router::RequestPreparer preparer(registry, [] { return uint64_t{0}; });
  BATON_ASSIGN_OR_RETURN(const auto engine, engine::Engine::Load(options.engine));
  BATON_RETURN_IF_ERROR(engine->CheckLands());
  const Asker asker{*engine, *registry.models().front(), options.max_tokens};
  ReuseEvalResult result{.gate = worker::ChunkGate::For(engine->fingerprint())};
  const int64_t all = std::ssize(questions);
  const int64_t asked = options.most_questions > 0 ? std::min(options.most_questions, all) : all;
  for (int64_t i = 0; i < asked; ++i) {
    const int64_t which = i * all / asked;
    if (absl::Status added = AddQuestion(asker, preparer, questions[static_cast<size_t>(which)], &result);
        !added.ok()) {
      return absl::Status(added.code(),
                          fmt::format("question {}: {}", which + 1, std::string(added.message())));
    }
    if (options.progress) options.progress(i + 1, asked);
  }
  worker::ChunkGate::Measured& measured = result.gate.measured;
  const auto count = static_cast<double>(measured.questions);
  for (double* sum : {&measured.kl, &measured.exact_match, &measured.recall_full, &measured.recall_reused}) {
    *sum /= count;
  }
  return result;
}

}  // namespace baton::lab
