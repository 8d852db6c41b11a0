#include "protocol/fleet/ticket.h"

namespace baton::protocol {

fleet::v1::Ticket Ticket::ToProto() const {
  fleet::v1::Ticket proto;
  proto.set_incarnation(incarnation.value());
  proto.set_id(id.value());
  proto.set_first_block(static_cast<uint32_t>(first_block));
  for (Generation generation : generations) proto.add_generations(generation.value());
  return proto;
}

Ticket Ticket::FromProto(const fleet::v1::Ticket& proto) {
  Ticket ticket{Incarnation(proto.incarnation()), TicketId(proto.id()), proto.first_block(), {}};
  for (uint32_t generation : proto.generations()) ticket.generations.emplace_back(generation);
  return ticket;
}

}  // namespace baton::protocol
