// Fingerprint on the wire. Pure functions, any thread.
#pragma once

#include <string>

#include "baton/fleet/v1/handoff.pb.h"
#include "protocol/fingerprint.h"

namespace baton::protocol {

fleet::v1::Fingerprint ToProto(const Fingerprint& fingerprint);
// Unknown dtypes become kF32 with layers 0: no fingerprint of ours is equal to that.
Fingerprint FromProto(const fleet::v1::Fingerprint& proto);

// The first field in which two workers' fingerprints differ ("weights", "kv.key_dtype"), or empty. It looks
// at the messages, so that it tells apart precisions that are not known here.
std::string DifferingField(const fleet::v1::Fingerprint& a, const fleet::v1::Fingerprint& b);

// SHA-256 over what decides the bits of an answer: the model, its weights, their and the KV's precision, and
// the numerics. The version of the hand-off, the link and the model's description are not in it.
std::string AnswerDigest(const fleet::v1::Fingerprint& fingerprint);

}  // namespace baton::protocol
