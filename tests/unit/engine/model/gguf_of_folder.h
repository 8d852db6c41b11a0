// A GGUF file of a model folder, as converters write it: metadata, names of tensors, the order of rows of Q
// and K, divisors of frequencies. Weights stay in the precision that they have.
#pragma once

#include <string>

#include "tests/unit/text/gguf/gguf_writer.h"

namespace baton::model {

// The file of a folder of one of the architectures that GGUF files are read of; no tokenizer. Not `paired`:
// the rows of Q and K stay in the order of the folder, which is wrong for Llama.
gguf::GgufWriter GgufOf(const std::string& folder, bool paired = true);

}  // namespace baton::model
