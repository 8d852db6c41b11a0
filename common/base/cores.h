// How many cores this process may use: those of its affinity mask, and no more than its control group's quota
// pays for; at least one.
#pragma once

namespace baton {

int UsableCores();

}  // namespace baton
