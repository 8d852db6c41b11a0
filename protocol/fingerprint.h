// Fingerprint: what two workers must agree on before KV blocks move between them, and what the root of every
// block hash is made of. Equal fingerprints mean that the same tokens give the same bytes of KV. Plain data,
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "protocol/kv_layout.h"

namespace baton::protocol {

// Version of the hand-off between workers; grows when its meaning changes.
inline constexpr uint32_t kHandoffProtocol = 1;

struct Fingerprint {
  uint32_t protocol = kHandoffProtocol;
  std::string model;    // model::ModelConfig::Describe(), so that a refusal can be read
  std::string config;   // model::ModelConfig::Digest()
  std::string weights;  // model::Decoder::weights_digest()
  kv::KvLayout kv;
  int block_tokens = kBlockTokens;
  std::string numerics;  // kernels::Kernels::numerics()

  // SHA-256 (32 bytes) over all fields, each with its length.
  std::string Digest() const;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// The first field that differs, with both values: `weights: 3f9a... here, 77c0... there`. Nothing if all are
// equal.
std::optional<std::string> FirstDifference(const Fingerprint& here, const Fingerprint& there);

}  // namespace baton::protocol
