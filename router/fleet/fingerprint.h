// What two workers disagree about, by name. Pure functions, any thread.
#pragma once

#include <string>

#include "baton/fleet/v1/handoff.pb.h"

namespace baton::router::fleet {

// The first field in which the fingerprints differ ("weights", "kv.key_dtype"), or empty.
std::string DifferingField(const baton::fleet::v1::Fingerprint& a, const baton::fleet::v1::Fingerprint& b);

}  // namespace baton::router::fleet
