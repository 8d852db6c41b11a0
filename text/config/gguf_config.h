// The metadata of a GGUF file, as the files of a model folder would say it, so that both are read by the same
// rules. Known are the architectures llama (Mistral's models among them), qwen2 and qwen3. A key of the
// architecture's own that is not known is refused by name. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/config/json_fields.h"
#include "text/gguf/document.h"

namespace baton::model {

// The content of config.json. INVALID_ARGUMENT names the file and the key or the tensor: one that is missing,
// out of range, or of an option that is not known.
//
// Where the file has a tensor of divisors of the rope's frequencies, it is Llama 3's scaling: its factor and
// its original context are computed from them. Without a matrix for the head the embeddings are tied.
absl::StatusOr<Json> ConfigOfGguf(const gguf::Document& document);

// The name that GGUF files have for an architecture of config.json, or empty.
std::string_view GgufArchitectureOf(std::string_view architecture);

// The content of generation_config.json, from general.sampling.
absl::StatusOr<Json> GenerationOfGguf(const gguf::Document& document);

// The name of a tensor in a model folder ("model.layers.0.mlp.up_proj.weight" for "blk.0.ffn_up.weight");
// unchanged if it is not known; empty if it is part of the configuration.
std::string FolderName(std::string_view tensor);

// How many heads' rows a tensor holds in pairs, given its name in a folder: in files of the architecture
// llama the rows of Q and K are ordered for a rotation of neighbours, row i of the first half of a head
// before row i of the second. 0: rows are in the order of a folder. For a document that ConfigOfGguf accepts.
int64_t PairedHeads(const gguf::Document& document, std::string_view folder_name);

}  // namespace baton::model
