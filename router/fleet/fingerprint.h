// Names what two workers disagree about, and digests what their answers follow from. Pure functions, any
// thread.
#pragma once

#include <string>

#include "baton/fleet/v1/handoff.pb.h"

namespace baton::router::fleet {

// The first field in which the fingerprints differ ("weights", "kv.key_dtype"), or empty.
std::string DifferingField(const baton::fleet::v1::Fingerprint& a, const baton::fleet::v1::Fingerprint& b);

// SHA-256 over what decides the bits of an answer: the model, its weights, their and the KV's precision, and
// the numerics. The version of the hand-off, the link and the model's description are not in it.
std::string AnswerDigest(const baton::fleet::v1::Fingerprint& fingerprint);

}  // namespace baton::router::fleet
