#include "prefill_service/link_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace baton::prefill_service {
namespace {

// Bytes of all tests in one step, for which hand-offs wait.
constexpr int64_t kStepBytes = int64_t{16} << 20;

}  // namespace

LinkTests::~LinkTests() {
  while (!tests_.empty()) End(tests_.begin());
}

absl::Status LinkTests::Submit(uint64_t id, protocol::Ticket ticket, Sink sink) {
  const int64_t most = std::max<int64_t>(1, kMaxTestBytes / engine_.store().layout().block_bytes());
  if (ticket.first_block != 0 || ticket.blocks() < 1 || ticket.blocks() > most) {
    return absl::InvalidArgumentError(
        fmt::format("ticket: covers blocks [{}, {}), a test takes 1 to {} from 0 on", ticket.first_block,
                    ticket.first_block + ticket.blocks(), most));
  }
  if (tests_.size() >= kMost) return absl::ResourceExhaustedError("too many links are tested: try again");
  const int64_t own = std::clamp<int64_t>(engine_.pool().available() / 4, 1, ticket.blocks());
  BATON_ASSIGN_OR_RETURN(std::vector<BlockId> blocks, engine_.pool().Allocate(own));
  std::vector<BlockId> table;
  for (int64_t i = 0; i < ticket.blocks(); ++i) table.push_back(blocks[static_cast<size_t>(i % own)]);
  tests_.emplace(
      id, Test{.sink = std::move(sink),
               .blocks = std::move(blocks),
               .table = std::move(table),
               .shipment = transfer::Shipment(std::move(ticket), link_, engine_.store(), max_chunk_bytes_)});
  return absl::OkStatus();
}

void LinkTests::Cancel(uint64_t id) {
  const auto found = tests_.find(id);
  if (found != tests_.end()) End(found);
}

absl::StatusOr<int64_t> LinkTests::Ship(Test& test, int64_t most) {
  const int layers = engine_.store().layout().layers;
  const int64_t blocks = std::min(most, std::ssize(test.table) - test.shipped);
  if (blocks == 0 || test.sink.congested() || link_.congested()) return 0;
  const int64_t room = test.shipment.Reserve(test.shipped, blocks, layers);
  absl::Status shipped = test.shipment.Ship(test.table, test.shipped, room, 0, layers, test.sink.send);
  test.shipment.Unreserve();
  BATON_RETURN_IF_ERROR(shipped);
  test.shipped += room;
  return room;
}

bool LinkTests::Step() {
  const int64_t chunk = std::max<int64_t>(1, max_chunk_bytes_ / engine_.store().layout().block_bytes());
  int64_t budget = std::max<int64_t>(1, kStepBytes / engine_.store().layout().block_bytes());
  bool more = false;
  for (auto at = tests_.begin(); at != tests_.end();) {
    Test& test = at->second;
    absl::StatusOr<int64_t> shipped = 0;
    do {
      shipped = Ship(test, std::min(chunk, budget));
      if (shipped.ok()) budget -= *shipped;
    } while (shipped.ok() && *shipped > 0);
    const bool all = test.shipped == std::ssize(test.table);
    if (all || !shipped.ok()) {
      link_.WhenReady([finish = test.sink.finish, status = shipped.status()] { finish(status); });
      at = End(at);
      continue;
    }
    more |= budget == 0;
    ++at;
  }
  return more;
}

void LinkTests::Abort(const absl::Status& status) {
  while (!tests_.empty()) {
    tests_.begin()->second.sink.finish(status);
    End(tests_.begin());
  }
}

LinkTests::Tests::iterator LinkTests::End(Tests::iterator test) {
  engine_.pool().Release(test->second.blocks);
  return tests_.erase(test);
}

}  // namespace baton::prefill_service
