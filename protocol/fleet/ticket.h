// Ticket: the right to fill exactly these blocks of one decode worker's pool, given out when they are
// reserved. It names the worker's incarnation, so that a ticket from before a restart is void after it, and a
// generation per block, so that a block that was given to another sequence meanwhile can't be written. Plain
// data.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "baton/fleet/v1/handoff.pb.h"
#include "common/base/ids.h"

namespace baton::protocol {

struct Ticket {
  Incarnation incarnation;
  TicketId id;
  // Index in the prompt of the first block that may be written.
  int64_t first_block = 0;
  std::vector<Generation> generations;

  int64_t blocks() const { return static_cast<int64_t>(generations.size()); }
  fleet::v1::Ticket ToProto() const;
  static Ticket FromProto(const fleet::v1::Ticket& proto);
};

}  // namespace baton::protocol
