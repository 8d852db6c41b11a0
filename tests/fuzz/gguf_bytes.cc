#include "tests/fuzz/gguf_bytes.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/config/config.h"
#include "text/config/gguf_config.h"
#include "text/gguf/document.h"
#include "text/gguf_text.h"
#include "text/tokenizer.h"

namespace baton::gguf {
namespace {

absl::Status Unsound(const std::string& what) { return absl::InternalError(what); }

// Reads a value in every way: each must give something or say why not.
absl::Status ReadInEveryWay(const Document& document, std::string_view key) {
  const absl::Status statuses[] = {document.Integer(key, -1000, 1000).status(),
                                   document.Number(key).status(),
                                   document.Flag(key).status(),
                                   document.Text(key).status(),
                                   document.Texts(key).status(),
                                   document.Numbers(key).status()};
  int read = 0;
  for (const absl::Status& status : statuses) {
    if (status.ok()) ++read;
    if (!status.ok() && status.message().empty()) return Unsound("refused without a message");
  }
  return read > 2 ? Unsound(fmt::format("{} has {} types", key, read)) : absl::OkStatus();
}

// Reads it as a model's loading does: refused with a message, or sound.
absl::Status ReadModel(const Document& document) {
  const auto config = model::ConfigOfGguf(document);
  if (!config.ok() && config.status().message().empty()) return Unsound("no message of a configuration");
  if (config.ok()) {
    const auto read = model::ModelConfig::FromJson(config->dump());
    if (read.ok() && (read->layers < 1 || read->head_dim < 2)) return Unsound("shape");
    for (const Tensor& tensor : document.tensors()) {
      const int64_t heads = model::PairedHeads(document, model::FolderName(tensor.name));
      if (read.ok() && heads != 0 && heads != read->heads && heads != read->kv_heads) return Unsound("heads");
    }
  }
  const auto generation = model::GenerationOfGguf(document);
  if (generation.ok()) generation->dump();
  const auto json = text::TokenizerOfGguf(document);
  if (!json.ok() && json.status().message().empty()) return Unsound("no message of a tokenizer");
  if (json.ok()) {
    const auto tokenizer = text::Tokenizer::FromJson(*json);
    if (tokenizer.ok()) (void)(*tokenizer)->Encode("a few words <s> 12", /*add_special_tokens=*/true);
  }
  const auto chat = text::TemplateOfGguf(document);
  if (chat.ok()) {
    (void)text::ChatTemplate::FromSources({.chat = chat->source, .tool_use = chat->tool_use},
                                          chat->special_tokens);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> FuzzGguf(std::span<const uint8_t> bytes) {
  const std::span<const std::byte> file = std::as_bytes(bytes);
  const auto document = Document::Parse(file, "fuzz");
  if (!document.ok()) {
    return document.status().message().empty() ? Unsound("refused without a message")
                                               : absl::StatusOr<bool>(false);
  }
  for (const auto& [key, value] : document->metadata()) {
    if (absl::Status status = ReadInEveryWay(*document, key); !status.ok()) return status;
  }
  for (const Tensor& tensor : document->tensors()) {
    const int64_t columns = tensor.shape.back();
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    if (static_cast<int64_t>(tensor.bytes.size()) != rows * tensor.format->RowBytes(columns)) {
      return Unsound(fmt::format("{}: {} bytes", tensor.name, tensor.bytes.size()));
    }
    if (tensor.bytes.data() < file.data() ||
        tensor.bytes.data() + tensor.bytes.size() > file.data() + file.size()) {
      return Unsound(fmt::format("{}: outside of the file", tensor.name));
    }
    if (document->FindTensor(tensor.name) != &tensor)
      return Unsound(fmt::format("{}: not found", tensor.name));
    // The whole tensor as one row: AddressSanitizer looks on.
    std::vector<float> numbers(static_cast<size_t>(rows * columns));
    ExpandRow(*tensor.format, tensor.bytes, numbers);
  }
  if (absl::Status status = ReadModel(*document); !status.ok()) return status;
  return true;
}

}  // namespace baton::gguf
