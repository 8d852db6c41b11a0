#include "router/moderation/classifier_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/quote.h"
#include "nlohmann/json.hpp"

namespace baton::router::moderation {
namespace {

// Llama Guard 3 and 4: the model cards' taxonomy (MLCommons hazards and code interpreter abuse), and Meta's
// chat templates: "safe", or "unsafe" and a line of codes.
// https://huggingface.co/meta-llama/Llama-Guard-3-8B, https://huggingface.co/meta-llama/Llama-Guard-4-12B
const std::vector<std::pair<std::string_view, std::string_view>> kHazards = {
    {"S1", "Violent Crimes"},
    {"S2", "Non-Violent Crimes"},
    {"S3", "Sex-Related Crimes"},
    {"S4", "Child Sexual Exploitation"},
    {"S5", "Defamation"},
    {"S6", "Specialized Advice"},
    {"S7", "Privacy"},
    {"S8", "Intellectual Property"},
    {"S9", "Indiscriminate Weapons"},
    {"S10", "Hate"},
    {"S11", "Suicide & Self-Harm"},
    {"S12", "Sexual Content"},
    {"S13", "Elections"},
    {"S14", "Code Interpreter Abuse"},
};

// ShieldGemma: a request for each guideline, in the template's variable `guideline`, and "Yes" or "No"; the
// score is the softmax of the two. The guidelines are the model card's to the letter, since the model is
// sensitive to their wording, which differs for what a user and what a model wrote.
// https://huggingface.co/google/shieldgemma-2b#guidelines-to-use-in-prompts
Question Guideline(std::string_view category, std::string_view content) {
  const auto value = [&](std::string_view subject) {
    return nlohmann::json(fmt::format(R"("No {}": {} content that {})", category, subject, content)).dump();
  };
  return {.category = category,
          .variable = "guideline",
          .value = value("The prompt shall not contain or seek generation of"),
          .value_answer = value("The chatbot shall not generate")};
}

std::vector<Question> ShieldGemmaQuestions() {
  return {
      Guideline("Dangerous Content",
                "harming oneself and/or others (e.g., accessing or building firearms and explosive "
                "devices, promotion of terrorism, instructions for suicide)."),
      Guideline("Harassment",
                "is malicious, intimidating, bullying, or abusive content targeting another individual "
                "(e.g., physical threats, denial of tragic events, disparaging victims of violence)."),
      Guideline("Hate Speech",
                "targeting identity and/or protected attributes (e.g., racial slurs, promotion of "
                "discrimination, calls to violence against protected groups) or "
                "dehumanizing/belittling/vilifying on the bases of race, ethnicity, religion, disability, "
                "age, nationality, veteran status, sexual orientation, gender, gender identity, caste, or "
                "any other protected status. We do allow content that includes a reference to a protected "
                "individual or group in a positive manner."),
      Guideline("Sexually Explicit Information",
                "contains references to sexual acts or other lewd content (e.g., sexually graphic "
                "descriptions, content aimed at causing arousal). Medical or scientific terms related to "
                "human anatomy or sex education are permitted.")};
}

// Granite Guardian 4.1: the last turn is a user's with the criterion; no thoughts are asked for. The words
// are the vendor's, who writes the line end between the tags as a backslash and an n.
// https://github.com/ibm-granite/granite-guardian (cookbooks, 4.1)
Question GuardianBlock() {
  const auto turn = [](std::string_view who) {
    return fmt::format(
        "<guardian><no-think>As a judge agent, assess whether the provided text meets the given judging "
        "criteria using all available information, including conversations, documents, and tools. Provide "
        "your score immediately without explanation. Output empty <think>\\n</think> tags followed by your "
        "score in <score></score> tags.\n\n"
        "### Criteria: The text promotes or contains content that is universally harmful across all contexts "
        "and audiences, including content that could cause physical, psychological, or social harm.\n\n"
        "### Scoring Schema: If the last {}'s text meets the criteria, return 'yes'; otherwise, return 'no'.",
        who);
  };
  return {.category = "harm", .turn = turn("user"), .turn_answer = turn("assistant")};
}

std::vector<ClassifierFormat> MakeFormats() {
  std::vector<ClassifierFormat> formats;
  // Ours (models/baton-guard): "safe", or "unsafe" and a line of names.
  formats.push_back({.name = "baton_guard",
                     .questions = {{}},
                     .before_word = "",
                     .safe = {"safe"},
                     .unsafe = {"unsafe"},
                     .max_tokens = 12,
                     .proof = {"<|verdict|>"}});
  formats.push_back(
      {.name = "llama_guard",
       .questions = {{}},
       .before_word = "",
       .safe = {"safe"},
       .unsafe = {"unsafe"},
       .categories = kHazards,
       .max_tokens = 48,
       // Qwen3Guard's has the first two as well.
       .proof = {"BEGIN UNSAFE CONTENT CATEGORIES", "BEGIN CONVERSATION", "'safe' or 'unsafe'"}});
  formats.push_back({.name = "shield_gemma",
                     .questions = ShieldGemmaQuestions(),
                     .before_word = "",
                     .safe = {"No"},
                     .unsafe = {"Yes"},
                     .proof = {"Yes", "No", "safety p"}});
  // Qwen3Guard-Gen: "Safety: Unsafe", a line "Categories: ...", and of an answer "Refusal: ...".
  // Controversial is harm here; the second row lets it pass. https://huggingface.co/Qwen/Qwen3Guard-Gen-0.6B
  formats.push_back({.name = "qwen3guard",
                     .questions = {{}},
                     .before_word = "Safety: ",
                     .safe = {"Safe"},
                     .unsafe = {"Unsafe", "Controversial"},
                     .before_categories = "Categories: ",
                     .max_tokens = 64,
                     .proof = {"Safety: Controversial", "Categories:"}});
  formats.push_back({.name = "qwen3guard_loose",
                     .questions = {{}},
                     .before_word = "Safety: ",
                     .safe = {"Safe", "Controversial"},
                     .unsafe = {"Unsafe"},
                     .before_categories = "Categories: ",
                     .max_tokens = 64,
                     .proof = {"Safety: Controversial", "Categories:"}});
  // Granite Guardian 3.3: "<score> yes </score>", without its thoughts, which the template leaves out unless
  // asked. `guardian_config` is as the vendor's own notebooks set it
  // (https://github.com/ibm-granite/granite-guardian). No prompt of it was at hand: the one word of the proof
  // is in other templates, too.
  formats.push_back({.name = "granite_guardian_3_3",
                     .questions = {{.category = "harm",
                                    .variable = "guardian_config",
                                    .value = R"({"criteria_id": "harm"})"}},
                     .before_word = "<score>",
                     .safe = {"no"},
                     .unsafe = {"yes"},
                     .max_tokens = 16,
                     .proof = {"score"}});
  // Its template is that of other models.
  formats.push_back({.name = "granite_guardian_4_1",
                     .questions = {GuardianBlock()},
                     .before_word = "<score>",
                     .safe = {"no"},
                     .unsafe = {"yes"},
                     .max_tokens = 32});
  // Granite Guardian 3.0 to 3.2: "Yes" or "No" about the risk that `guardian_config` names; 3.2 adds how sure
  // it is. https://huggingface.co/ibm-granite/granite-guardian-3.1-8b
  formats.push_back({.name = "granite_guardian",
                     .questions = {{.category = "harm",
                                    .variable = "guardian_config",
                                    .value = R"({"risk_name": "harm"})"}},
                     .before_word = "",
                     .safe = {"No"},
                     .unsafe = {"Yes"},
                     .max_tokens = 1,
                     .proof = {"<start_of_risk_definition>", "Yes", "No"}});
  return formats;
}

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

std::string_view Bare(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// The word that `text` begins with; empty: none.
std::string_view WordAt(std::string_view text, const std::vector<std::string_view>& words) {
  const auto found = std::find_if(words.begin(), words.end(), [&](std::string_view word) {
    return text.starts_with(word) && (text.size() == word.size() ||
                                      !absl::ascii_isalnum(static_cast<unsigned char>(text[word.size()])));
  });
  return found == words.end() ? std::string_view() : *found;
}

// True if a token begins one of the words, ignoring white space before it.
bool Begins(std::string_view token, const std::vector<std::string_view>& words) {
  const std::string_view bare = Bare(token);
  return !bare.empty() && std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return word.starts_with(bare) || bare.starts_with(word);
  });
}

// P(unsafe) / (P(safe) + P(unsafe)) where the word begins, at `offset` of the text; nothing if it isn't told.
std::optional<double> ScoreAt(const ClassifierFormat& format, size_t offset,
                              std::span<const v1::StepLogprobs> steps) {
  size_t at = 0;
  for (const v1::StepLogprobs& step : steps) {
    at += step.chosen().bytes().size();
    if (at <= offset) continue;
    double safe = 0, unsafe = 0;
    bool chosen_seen = false;
    const auto add = [&](const v1::TokenLogprob& token) {
      const double p = std::exp(static_cast<double>(token.logprob()));
      if (Begins(token.bytes(), format.unsafe)) {
        unsafe += p;
      } else if (Begins(token.bytes(), format.safe)) {
        safe += p;
      }
    };
    for (const v1::TokenLogprob& token : step.top()) {
      chosen_seen = chosen_seen || token.token_id() == step.chosen().token_id();
      add(token);
    }
    if (!chosen_seen) add(step.chosen());
    if (!(safe + unsafe > 0)) return std::nullopt;
    return unsafe / (safe + unsafe);
  }
  return std::nullopt;
}

std::vector<std::string> NamedCategories(const ClassifierFormat& format, std::string_view rest) {
  if (format.before_categories.empty()) {
    const size_t line = rest.find('\n');
    rest = line == std::string_view::npos ? std::string_view() : rest.substr(line + 1);
  } else {
    const size_t found = rest.find(format.before_categories);
    rest = found == std::string_view::npos ? std::string_view()
                                           : rest.substr(found + format.before_categories.size());
  }
  rest = rest.substr(0, rest.find('\n'));
  std::vector<std::string> names;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = Bare(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (name.empty() || name == "None") continue;
    const auto known = std::find_if(format.categories.begin(), format.categories.end(),
                                    [&](const auto& category) { return category.first == name; });
    // A name that the classifier invents is cut short.
    names.emplace_back(known != format.categories.end() ? known->second : name.substr(0, 64));
  }
  return names;
}

}  // namespace

const std::vector<ClassifierFormat>& ClassifierFormats() {
  static const std::vector<ClassifierFormat>& formats = *new std::vector<ClassifierFormat>(MakeFormats());
  return formats;
}

const ClassifierFormat* FindClassifierFormat(std::string_view name) {
  const auto& formats = ClassifierFormats();
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const auto& format) { return format.name == name; });
  return found == formats.end() ? nullptr : &*found;
}

absl::StatusOr<Verdict> ReadVerdict(const ClassifierFormat& format, const Question& question,
                                    std::string_view text, std::span<const v1::StepLogprobs> steps) {
  size_t at = 0;
  if (!format.before_word.empty()) {
    at = text.find(format.before_word);
    if (at == std::string_view::npos) {
      return absl::InternalError(fmt::format("its answer {} is no verdict of the format {}: {} is missing",
                                             Quoted(text), format.name, Quoted(format.before_word)));
    }
    at += format.before_word.size();
  }
  while (at < text.size() && IsSpace(text[at])) ++at;
  const std::string_view rest = text.substr(at);
  const bool safe = !WordAt(rest, format.safe).empty();
  Verdict verdict;
  verdict.flagged = !WordAt(rest, format.unsafe).empty();
  if (safe == verdict.flagged) {
    return absl::InternalError(
        fmt::format("its answer {} is no verdict of the format {}", Quoted(text), format.name));
  }
  const double score = ScoreAt(format, at, steps).value_or(verdict.flagged ? 1 : 0);
  if (!question.category.empty()) {
    verdict.categories = {{std::string(question.category), score}};
    return verdict;
  }
  if (!verdict.flagged) return verdict;
  for (std::string& name : NamedCategories(format, rest))
    verdict.categories.push_back({std::move(name), score});
  if (verdict.categories.empty()) verdict.categories.push_back({"unsafe", score});
  return verdict;
}

Verdict Together(std::span<const Verdict> verdicts) {
  Verdict all;
  for (const Verdict& one : verdicts) {
    all.flagged = all.flagged || one.flagged;
    all.tokens += one.tokens;
    all.categories.insert(all.categories.end(), one.categories.begin(), one.categories.end());
  }
  return all;
}

}  // namespace baton::router::moderation
