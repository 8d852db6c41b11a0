// model::Fingerprint on the wire. Pure functions.
#pragma once

#include "baton/fleet/v1/handoff.pb.h"
#include "engine/model/fingerprint.h"

namespace baton::transfer {

fleet::v1::Fingerprint ToProto(const model::Fingerprint& fingerprint);
// Unknown dtypes become kF32 with layers 0: no fingerprint of ours is equal to that.
model::Fingerprint FromProto(const fleet::v1::Fingerprint& proto);

}  // namespace baton::transfer
