#include "engine/model/gguf_tensors.h"

#include "common/base/status.h"
#include "text/config/gguf_config.h"

namespace baton::model {

absl::StatusOr<std::optional<GgufTensors>> GgufTensors::OpenIfGguf(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(auto file, gguf::OpenIfGguf(path));
  if (!file.has_value()) return std::nullopt;
  GgufTensors tensors(std::move(file->mapping));
  tensors.mapping_.WillRead();
  for (const gguf::Tensor& tensor : file->document.tensors()) {
    StoredTensor stored = {.name = FolderName(tensor.name), .shape = tensor.shape, .bytes = tensor.bytes};
    if (stored.name.empty()) continue;
    stored.paired_heads = PairedHeads(file->document, stored.name);
    switch (tensor.format->id) {
      case gguf::kIdF32:
        stored.type = StoredType::kF32;
        break;
      case gguf::kIdF16:
        stored.type = StoredType::kF16;
        break;
      case gguf::kIdBF16:
        stored.type = StoredType::kBF16;
        break;
      default:
        stored.type = StoredType::kBlocks;
        stored.blocks = tensor.format;
    }
    tensors.tensors_.push_back(std::move(stored));
  }
  return tensors;
}

}  // namespace baton::model
