#include "router/api/served_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/base/quote.h"
#include "common/base/status.h"
#include "common/output/call_grammar.h"
#include "common/output/stable_history.h"

namespace baton::router {
namespace {

absl::StatusOr<output::FormatChoice> ChoiceOf(const ServedModel& served, const std::string& named) {
  if (!named.empty()) {
    const output::OutputFormat* const format = output::FindFormat(named);
    if (format == nullptr) {
      return absl::InvalidArgumentError(fmt::format(
          "output format {}: there is none of this name (docs/output-formats.md)", Quoted(named)));
    }
    return output::FormatChoice{.format = format,
                                .tools = format->layout != output::Layout::kNone,
                                .thinking = !format->think_cut.empty()};
  }
  if (served.chat_template == nullptr) return output::FormatChoice{.format = output::FindFormat("none")};
  return output::ChooseFormat(served.tokenizer, *served.chat_template);
}

}  // namespace

absl::StatusOr<ServedModel> ServedModel::Load(const std::string& folder, const std::string& name,
                                              const std::string& output_format) {
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
  BATON_ASSIGN_OR_RETURN(served.defaults, model::GenerationDefaults::Load(folder, config));
  BATON_ASSIGN_OR_RETURN(served.tokenizer, text::Tokenizer::Load(folder));
  if (served.tokenizer->vocabulary() > served.vocabulary) {
    return absl::InvalidArgumentError(
        fmt::format("{}: tokenizer.json has token ids up to {}, and config.json's vocab_size says that the "
                    "model embeds {}: they are of different models, or a token was added without its "
                    "embedding",
                    folder, served.tokenizer->vocabulary() - 1, served.vocabulary));
  }
  auto chat_template = text::ChatTemplate::Load(folder);
  if (chat_template.ok()) {
    served.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status())) {
    return chat_template.status();
  }
  BATON_ASSIGN_OR_RETURN(served.output, ChoiceOf(served, output_format));
  if (served.chat_template != nullptr) {
    served.unstable_history = output::UnstableHistory(served.output, *served.chat_template);
  }
  served.literal = std::make_shared<text::LiteralText>(served.tokenizer, served.chat_template.get());
  served.grammars = std::make_shared<GrammarCheck>(*served.tokenizer);
  served.markers = std::make_shared<output::MarkerTable>(*served.output.format, *served.tokenizer);
  served.strict_tools = served.grammars->available() && served.output.tools &&
                        output::CanConstrainCalls(*served.markers, served.output.thinking);
  served.text_beside_tools = served.strict_tools && output::TellsCallsFromText(*served.markers);
  return served;
}

}  // namespace baton::router
