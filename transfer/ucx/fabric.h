// Fabric: what the ucx link needs of a library that reads the memory of other processes: registered memory,
// endpoints to peers, reads, and small notices. One level deep: UcxFabric here; tests put decorators around
// it that delay, fail and damage. Nothing in it blocks. After Register, which happens before the link's
// thread starts, all calls but version, address and Wake are that thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::transfer {

class Fabric {
 public:
  // Number of one connection to one peer; never reused.
  using Endpoint = uint64_t;
  // The two memories of a peer that an endpoint reads from.
  enum class Region { kPayloads, kSlots };

  struct Event {
    enum class Kind {
      kRead,    // the read `number` has ended with `status`: its memory is not touched any more
      kFailed,  // the endpoint `number` has failed: it should be closed
      kNotice,  // a peer says `notice`
    };
    Kind kind = Kind::kRead;
    uint64_t number = 0;
    absl::Status status;
    std::string notice;
  };

  virtual ~Fabric() = default;

  // The library's version, "1.13.1": the same at both ends.
  virtual std::string version() const = 0;
  // Where peers reach this worker, on its host.
  virtual const std::string& address() const = 0;
  // Lets peers read `bytes` bytes, the memory of this side that `region` names to them, as long as the fabric
  // lives, and write none. What a peer needs for that.
  virtual absl::StatusOr<std::string> Register(Region region, std::byte* data, int64_t bytes) = 0;

  // Begins to connect to the worker at `address` on the host of `from` (host:port, of which the port is
  // another server's). UNAVAILABLE: there can be no such worker.
  virtual absl::StatusOr<Endpoint> Connect(const std::string& from, const std::string& address,
                                           const std::string& payload_key, const std::string& slot_key) = 0;
  // Reads `bytes` bytes at the peer's address `from` into the same region of this side. An event tells its
  // end.
  virtual void Read(Endpoint endpoint, Region region, uint64_t from, std::byte* to, int64_t bytes,
                    uint64_t number) = 0;
  // Tells the peer, unless the endpoint fails first.
  virtual void Notify(Endpoint endpoint, std::string_view notice) = 0;
  // Gives the endpoint up: reads in progress end with an error, and their events still come.
  virtual void Close(Endpoint endpoint) = 0;
  // Moves everything on and appends what has happened.
  virtual void Progress(std::vector<Event>& events) = 0;
  // Nothing is in progress: no read, no notice, no close.
  virtual bool idle() const = 0;
  // Sleeps until something happens, Wake is called, or for `most`.
  virtual void Wait(absl::Duration most) = 0;
  // Ends a Wait, the next one if there is none now. Any thread.
  virtual void Wake() = 0;
};

}  // namespace baton::transfer
