// The same bytes as a template and as a tokenizer_config.json that may hold one.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/text_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto fuzz : {baton::text::FuzzChatTemplate, baton::text::FuzzTokenizerConfig}) {
    const auto accepted = fuzz({data, size});
    BATON_CHECK(accepted.ok()) << accepted.status();
  }
  return 0;
}
