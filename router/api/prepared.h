// Prepared: a generation request that was validated, rendered and tokenized, with every default resolved:
// complete for the decode worker except for what placement decides. A plain value.
#pragma once

#include <cstdint>
#include <string>

#include "baton/v1/decode.pb.h"

namespace baton::router {

struct Prepared {
  v1::DecodeRequest request;
  std::string model;
  int choices = 1;
  uint64_t seed = 0;
  // Hash of the session's id; 0: none.
  uint64_t session = 0;
  // Explain the placement.
  bool debug = false;
  // The client wants token ids too (the router always asks for them).
  bool token_ids = false;
};

}  // namespace baton::router
