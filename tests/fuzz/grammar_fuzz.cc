// Grammars of clients: schemas, regular expressions, choices, Lark, and calls of tools.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/grammar_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = baton::output::FuzzGrammar({data, size});
  BATON_CHECK(status.ok()) << status;
  return 0;
}
