// Outbound: bytes on their way out of a device's memory, for which nobody who issues work waits. Gather
// copies pieces aside on the device, in the order of the device's own work, so that what is issued next may
// write them again; Take waits for the copy and brings it to the host. One level deep: device/cuda has one
// per GPU, engine/ranks_memory.h one for all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton::device {

class Outbound {
 public:
  struct Piece {
    const std::byte* here = nullptr;
    int64_t at = 0;  // in the payload
    int64_t bytes = 0;
  };

  virtual ~Outbound() = default;
  // Numbers count from 1. Ordered after the operations before `mark` (Memory::Mark), one of the last
  // Memory::kMarks, and waits on the device for nothing that was issued later. Waits on the host only for
  // room, until Take has brought enough of what was gathered before. Payloads have at most the bytes that
  // Memory::MakeOutbound was asked for. The thread that issues the memory's operations.
  virtual uint64_t Gather(int64_t mark, std::span<const Piece> pieces) = 0;
  // Brings the pieces that were gathered under `number` to their places in `payload`, and gives back their
  // room. Each number once, in order. Any one thread beside that of Gather.
  virtual void Take(uint64_t number, std::byte* payload) = 0;
};

}  // namespace baton::device
