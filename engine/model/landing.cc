#include "engine/model/landing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "engine/kv/store/kv_codec.h"

namespace baton::model {
namespace {

using kv::KvLayer;

// The rotation from one position to another, of each pair of dimensions.
struct Turn {
  std::vector<float> cos, sin;  // [half_dim]
  bool none = true;

  // The table has s cos(a) and s sin(a), with a factor s that a key has once already (YaRN). In double, where
  // products of floats are exact.
  void Set(const kernels::RopeTable& rope, int64_t from, int64_t to) {
    none = from == to;
    const auto half = static_cast<size_t>(rope.half_dim);
    cos.resize(half);
    sin.resize(half);
    const float* const cos_a = rope.cos.data() + from * rope.half_dim;
    const float* const sin_a = rope.sin.data() + from * rope.half_dim;
    const float* const cos_b = rope.cos.data() + to * rope.half_dim;
    const float* const sin_b = rope.sin.data() + to * rope.half_dim;
    for (size_t i = 0; i < half; ++i) {
      const double ca = cos_a[i], sa = sin_a[i], cb = cos_b[i], sb = sin_b[i];
      const double square = ca * ca + sa * sa;
      cos[i] = static_cast<float>((cb * ca + sb * sa) / square);
      sin[i] = static_cast<float>((sb * ca - cb * sa) / square);
    }
  }

  void Apply(float* key) const {
    const size_t half = cos.size();
    for (size_t i = 0; i < half; ++i) {
      const float low = key[i], high = key[i + half];
      key[i] = low * cos[i] - high * sin[i];
      key[i + half] = high * cos[i] + low * sin[i];
    }
  }
};

// A token of a block.
struct TokenPlace {
  std::byte* block;
  int64_t token;
};

void CopyScale(tensor::DType dtype, int head_dim, const std::byte* from, int64_t token, std::byte* to,
               int64_t to_token) {
  if (!tensor::IsScaled(dtype)) return;
  const int64_t scales = kv::ScalesAt(dtype, head_dim);
  std::memcpy(to + scales + to_token * int64_t{sizeof(float)}, from + scales + token * int64_t{sizeof(float)},
              sizeof(float));
}

// One head's vector as it is stored: number i is `size` bytes at place(i, token), or a code of half a byte.
void CopyKey(tensor::DType dtype, int head_dim, const std::byte* from, int64_t token, std::byte* to,
             int64_t to_token) {
  if (dtype == tensor::DType::kI4) {
    for (int d = 0; d < head_dim; ++d) {
      kv::PutCode(to, kv::I4KeyPlace(d, to_token), kv::CodeAt(from, kv::I4KeyPlace(d, token)));
    }
  } else {
    const int64_t size = tensor::BitsOf(dtype) / 8;
    for (int64_t d = 0; d < head_dim; ++d) {
      std::memcpy(to + (d * kBlockTokens + to_token) * size, from + (d * kBlockTokens + token) * size,
                  static_cast<size_t>(size));
    }
  }
  CopyScale(dtype, head_dim, from, token, to, to_token);
}

void CopyValue(tensor::DType dtype, int head_dim, const std::byte* from, int64_t token, std::byte* to,
               int64_t to_token) {
  if (dtype == tensor::DType::kI4) {
    for (int d = 0; d < head_dim; ++d) {
      kv::PutCode(to, kv::I4ValuePlace(d, head_dim, to_token),
                  kv::CodeAt(from, kv::I4ValuePlace(d, head_dim, token)));
    }
  } else {
    const int64_t bytes = int64_t{head_dim} * tensor::BitsOf(dtype) / 8;
    std::memcpy(to + to_token * bytes, from + token * bytes, static_cast<size_t>(bytes));
  }
  CopyScale(dtype, head_dim, from, token, to, to_token);
}

// Null turn: the key stays as it is.
void LandToken(const KvLayer& layer, const Turn* turn, const TokenPlace& from, const TokenPlace& to,
               float* key) {
  for (int head = 0; head < layer.kv_heads; ++head) {
    const std::byte* const keys = from.block + layer.key_offset(head);
    std::byte* const landed = to.block + layer.key_offset(head);
    if (turn == nullptr || turn->none) {
      CopyKey(layer.key_dtype, layer.head_dim, keys, from.token, landed, to.token);
    } else {
      kv::LoadKey(layer.key_dtype, keys, layer.head_dim, from.token, key);
      turn->Apply(key);
      kv::StoreKey(layer.key_dtype, key, layer.head_dim, to.token, landed);
    }
    CopyValue(layer.value_dtype, layer.head_dim, from.block + layer.value_offset(head), from.token,
              to.block + layer.value_offset(head), to.token);
  }
}

}  // namespace

void LandKv(const kernels::RopeTable& rope, const Landing& landing, kv::KvStore& store,
            const std::vector<bool>& others, const kernels::RopeTable* other) {
  BATON_CHECK(store.memory().host());
  BATON_CHECK(landing.from_position >= 0 && landing.to_position >= 0 && landing.tokens >= 0);
  BATON_CHECK(landing.from_position + landing.tokens <= std::ssize(landing.from) * kBlockTokens);
  BATON_CHECK(landing.to_position + landing.tokens <= std::ssize(landing.to) * kBlockTokens);
  BATON_CHECK((std::max(landing.from_position, landing.to_position) + landing.tokens) * rope.half_dim <=
              std::ssize(rope.cos));
  std::vector<float> key(static_cast<size_t>(store.layout().head_dim));
  Turn turn, other_turn;
  for (int64_t t = 0; t < landing.tokens; ++t) {
    const int64_t at = landing.from_position + t, to = landing.to_position + t;
    turn.Set(rope, at, to);
    if (other != nullptr) other_turn.Set(*other, at, to);
    const TokenPlace source = {store.block(landing.from[static_cast<size_t>(at / kBlockTokens)]),
                               at % kBlockTokens};
    const TokenPlace target = {store.block(landing.to[static_cast<size_t>(to / kBlockTokens)]),
                               to % kBlockTokens};
    for (int l = 0; l < store.layout().layers; ++l) {
      const bool by_other = !others.empty() && others[static_cast<size_t>(l)];
      const Turn* const of_layer = !by_other ? &turn : other != nullptr ? &other_turn : nullptr;
      LandToken(store.layer(l), of_layer, source, target, key.data());
    }
  }
}

}  // namespace baton::model
