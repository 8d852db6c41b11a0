#include "router/api/served_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "common/base/digest.h"
#include "common/base/quote.h"
#include "common/base/secret.h"
#include "common/base/status.h"
#include "common/telemetry/load_watch.h"
#include "router/api/classifier_prompt.h"
#include "text/config/ends_digest.h"
#include "text/output/call_grammar.h"
#include "text/output/stable_history.h"
#include "text/tokenizer_digest.h"

namespace baton::router {
namespace {

absl::StatusOr<output::FormatChoice> ChoiceOf(const ServedModel& served, const std::string& named) {
  if (!named.empty()) {
    const output::OutputFormat* const format = output::FindFormat(named);
    if (format == nullptr) {
      return absl::InvalidArgumentError(fmt::format(
          "output format {}: there is none of this name (docs/output-formats.md)", Quoted(named)));
    }
    const output::CallStyle calls =
        served.chat_template == nullptr
            ? output::CallStyle()
            : output::TryFormat(*format, served.tokenizer, *served.chat_template).calls;
    return output::FormatChoice{.format = format,
                                .tools = format->layout != output::Layout::kNone,
                                .thinking = !format->think_cut.empty(),
                                .calls = calls};
  }
  if (served.chat_template == nullptr) return output::FormatChoice{.format = output::FindFormat("none")};
  return output::ChooseFormat(served.tokenizer, *served.chat_template);
}

// A classifier's first format whose prompts the template writes.
constexpr std::string_view kFoundByTemplate = "auto";

absl::Status MakeClassifier(const std::string& format, const std::string& folder, ServedModel* served) {
  if (served->chat_template == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a classifier's prompts are written by its chat template, and it has none", folder));
  }
  if (format == kFoundByTemplate) {
    const auto found = RecogniseClassifier(*served->chat_template, *served->tokenizer, served->context);
    if (!found.has_value()) {
      return absl::FailedPreconditionError(
          fmt::format("{}: its chat template is of no family of classifiers that is known: name its format "
                      "(docs/moderation.md)",
                      folder));
    }
    served->classifier = found->format;
    served->classifier_room = found->room;
    return absl::OkStatus();
  }
  served->classifier = moderation::FindClassifierFormat(format);
  if (served->classifier == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& one : moderation::ClassifierFormats()) names.push_back(one.name);
    return absl::InvalidArgumentError(
        fmt::format("classifier {}: there is no format of this name; use one of {}", Quoted(format),
                    fmt::join(names, ", ")));
  }
  if (served->chat_template == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a classifier's prompts are written by its chat template, and it has none", folder));
  }
  auto room =
      ProveClassifier(*served->classifier, *served->chat_template, *served->tokenizer, served->context);
  if (!room.ok()) {
    return absl::Status(room.status().code(),
                        fmt::format("{}: {}", folder, std::string(room.status().message())));
  }
  served->classifier_room = *room;
  return absl::OkStatus();
}

// Grows when this source makes another answer of the same request, model and numerics: another order of the
// sampler's filters, another parser of parts.
constexpr int kAnswers = 4;

std::string AnswerDigestOf(const ServedModel& served) {
  const model::GenerationDefaults& defaults = served.defaults;
  const auto text = [](const auto& value) { return value.has_value() ? fmt::format("{}", *value) : "-"; };
  return Sha256Of(fmt::format("{} {} {} {} {} {} {} {} {} {} ", kAnswers, served.output.format->name,
                              text(defaults.temperature), text(defaults.top_p), text(defaults.min_p),
                              text(defaults.repetition_penalty), text(defaults.top_k),
                              text(defaults.max_new_tokens), defaults.do_sample,
                              served.output.tools ? "tools" : "text") +
                  served.tokenizer_digest + served.ends_digest + served.template_digest);
}

}  // namespace

std::string ServedModel::BuildWith(std::string_view workers) const {
  const std::string digest = Sha256Of(answer_digest + std::string(workers));
  return ToHex(std::as_bytes(std::span(digest)).first(8));
}

absl::StatusOr<ServedModel> ServedModel::Load(const std::string& folder, const std::string& name,
                                              const std::string& output_format,
                                              const std::string& classifier) {
  const telemetry::LoadWatch watch(folder);
  ServedModel served;
  served.name = name;
  if (served.name.empty()) {
    std::filesystem::path path(folder);
    if (!path.has_filename()) path = path.parent_path();  // a trailing slash
    served.name = path.filename().string();
  }
  BATON_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ModelConfig::Load(folder));
  served.config = config.Digest();
  served.context = config.context;
  served.vocabulary = config.vocabulary;
  BATON_ASSIGN_OR_RETURN(served.defaults, model::GenerationDefaults::Load(folder, config.vocabulary));
  BATON_ASSIGN_OR_RETURN(served.tokenizer, text::Tokenizer::Load(folder));
  if (served.tokenizer->vocabulary() > served.vocabulary) {
    return absl::InvalidArgumentError(
        fmt::format("{}: tokenizer.json has token ids up to {}, and config.json's vocab_size says that the "
                    "model embeds {}: they are of different models, or a token was added without its "
                    "embedding",
                    folder, served.tokenizer->vocabulary() - 1, served.vocabulary));
  }
  served.tokenizer_digest = text::TokenizerDigest(*served.tokenizer);
  served.ends_digest = model::EndsDigest(config.eos);
  auto chat_template = text::ChatTemplate::Load(folder);
  if (chat_template.ok()) {
    served.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status())) {
    return chat_template.status();
  }
  served.template_digest = served.chat_template == nullptr ? Sha256Of("") : served.chat_template->digest();
  BATON_ASSIGN_OR_RETURN(served.output, ChoiceOf(served, output_format));
  if (served.chat_template != nullptr) served.history = output::HistoryStyleOf(*served.chat_template);
  // Nobody goes on with a verdict.
  if (served.chat_template != nullptr && classifier.empty()) {
    served.unstable_history = output::UnstableHistory(served.output, *served.chat_template);
  }
  served.answer_digest = AnswerDigestOf(served);
  served.literal = std::make_shared<text::LiteralText>(served.tokenizer, served.chat_template.get());
  served.grammars = std::make_shared<GrammarCheck>(*served.tokenizer);
  served.markers = std::make_shared<output::MarkerTable>(*served.output.format, *served.tokenizer);
  served.strict_tools = served.grammars->available() && served.output.tools &&
                        output::CanConstrainCalls(*served.markers, served.output.thinking);
  served.text_beside_tools = served.strict_tools && output::TellsCallsFromText(*served.markers);
  if (!classifier.empty()) BATON_RETURN_IF_ERROR(MakeClassifier(classifier, folder, &served));
  return served;
}

}  // namespace baton::router
