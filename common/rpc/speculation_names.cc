#include "common/rpc/speculation_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace baton::rpc {
namespace {

std::string WordOf(const google::protobuf::EnumValueDescriptor& value) {
  const std::string name(absl::StripPrefix(value.name(), "SPECULATION_"));
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}});
}

}  // namespace

std::vector<std::string> SpeculationWords() {
  std::vector<std::string> words;
  const auto& all = *v1::Speculation_descriptor();
  for (int i = 0; i < all.value_count(); ++i) {
    if (all.value(i)->number() != v1::SPECULATION_UNSPECIFIED) words.push_back(WordOf(*all.value(i)));
  }
  return words;
}

std::optional<v1::Speculation> SpeculationOf(std::string_view word) {
  const auto& all = *v1::Speculation_descriptor();
  for (int i = 0; i < all.value_count(); ++i) {
    const auto& value = *all.value(i);
    if (value.number() != v1::SPECULATION_UNSPECIFIED && WordOf(value) == word) {
      return static_cast<v1::Speculation>(value.number());
    }
  }
  return std::nullopt;
}

}  // namespace baton::rpc
