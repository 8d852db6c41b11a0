// NamedType: an arithmetic value with a name, so that a block id can't be passed where a token id is meant.
// Trivially copyable, hashable, ordered; value() gives the raw number where it has to leave the type.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>

namespace baton {

template <typename Rep, typename Tag>
class NamedType {
 public:
  using rep = Rep;
  constexpr NamedType() = default;
  constexpr explicit NamedType(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(NamedType, NamedType) = default;

  template <typename H>
  friend H AbslHashValue(H state, NamedType id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Rep value_{};
};

}  // namespace baton

template <typename Rep, typename Tag>
struct std::hash<baton::NamedType<Rep, Tag>> {
  size_t operator()(baton::NamedType<Rep, Tag> id) const { return std::hash<Rep>{}(id.value()); }
};
