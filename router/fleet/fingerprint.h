// What two workers disagree about, by name. Pure functions, any thread.
#pragma once

#include <string>

#include "baton/v1/handoff.pb.h"

namespace baton::router::fleet {

// The first field in which the fingerprints differ ("weights", "kv.key_dtype"), or empty.
std::string DifferingField(const v1::Fingerprint& a, const v1::Fingerprint& b);

}  // namespace baton::router::fleet
