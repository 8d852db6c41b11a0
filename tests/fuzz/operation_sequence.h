// OperationSequence: bytes read as operations on something that is looked at after each. What differs from
// one thing to another is what the operations do and what has to be true of it. One thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace baton {

class OperationSequence {
 public:
  virtual ~OperationSequence() = default;

  // How many operations were done; INTERNAL: the first thing that was wrong, and after which of them.
  absl::StatusOr<int64_t> Run() {
    int64_t done = 0;
    for (; !bytes_.empty(); ++done) {
      const int operation = Next() % kinds_;
      Do(operation);
      Look();
      if (!sound()) return absl::InternalError(fmt::format("operation {} ({}): {}", done, operation, wrong_));
    }
    ComeToAnEnd();
    if (!sound()) return absl::InternalError(fmt::format("at the end: {}", wrong_));
    return done;
  }

 protected:
  // Operations are numbered [0, kinds).
  OperationSequence(std::span<const uint8_t> bytes, int kinds) : bytes_(bytes), kinds_(kinds) {}

  virtual void Do(int operation) = 0;
  virtual void Look() = 0;
  virtual void ComeToAnEnd() = 0;

  // 0 when there are no more.
  uint8_t Next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  // The first is kept.
  void Wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  bool sound() const { return wrong_.empty(); }

  std::span<const uint8_t> bytes_;

 private:
  const int kinds_;
  std::string wrong_;
};

}  // namespace baton
