#include "protocol/fingerprint.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/digest.h"

namespace baton::protocol {
namespace {

std::string Bytes(const Sha256Digest& digest) {
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Enough of a digest to tell two apart by eye.
std::string Short(const std::string& digest) { return absl::BytesToHexString(digest.substr(0, 8)) + "..."; }

struct Field {
  std::string_view name;
  std::string value;  // exact
  std::string shown;
};

// In the order in which a difference says most: a different model also has different weights.
std::vector<Field> FieldsOf(const Fingerprint& f) {
  std::vector<Field> fields;
  const auto text = [&fields](std::string_view name, std::string value) {
    fields.push_back({name, value, value});
  };
  text("protocol", fmt::format("{}", f.protocol));
  text("model", f.model);
  fields.push_back({"config", f.config, Short(f.config)});
  fields.push_back({"weights", f.weights, Short(f.weights)});
  text("kv.layers", fmt::format("{}", f.kv.layers));
  text("kv.kv_heads", fmt::format("{}", f.kv.kv_heads));
  text("kv.head_dim", fmt::format("{}", f.kv.head_dim));
  text("kv.block_tokens", fmt::format("{}", f.block_tokens));
  text("kv.key_dtype", std::string(tensor::Name(f.kv.key_dtype)));
  text("kv.value_dtype", std::string(tensor::Name(f.kv.value_dtype)));
  // The wire does not carry these yet, so that a worker which has any is refused by all others.
  std::string exceptions;
  for (const kv::KvException& layer : f.kv.exceptions) {
    exceptions += fmt::format("{}layer {} {} {}", exceptions.empty() ? "" : ", ", layer.layer,
                              tensor::Name(layer.key_dtype), tensor::Name(layer.value_dtype));
  }
  text("kv.exceptions", exceptions.empty() ? "none" : exceptions);
  text("numerics", f.numerics);
  return fields;
}

void AddWithLength(Sha256& sha, std::string_view value) {
  std::array<std::byte, 8> length;
  for (size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>(uint64_t{value.size()} >> (8 * i));
  sha.Update(length);
  sha.Update(value);
}

}  // namespace

std::string Fingerprint::Digest() const {
  Sha256 sha;
  for (const Field& field : FieldsOf(*this)) {
    AddWithLength(sha, field.name);
    AddWithLength(sha, field.value);
  }
  return Bytes(sha.Finish());
}

std::optional<std::string> FirstDifference(const Fingerprint& here, const Fingerprint& there) {
  const std::vector<Field> ours = FieldsOf(here);
  const std::vector<Field> theirs = FieldsOf(there);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].value == theirs[i].value) continue;
    return fmt::format("{}: {} here, {} there", ours[i].name, ours[i].shown, theirs[i].shown);
  }
  return std::nullopt;
}

}  // namespace baton::protocol
