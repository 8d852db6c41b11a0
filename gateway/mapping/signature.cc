#include "gateway/mapping/signature.h"

#include "absl/strings/escaping.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kPlain = "baton";
constexpr std::string_view kCarrying = "baton.";

}  // namespace

std::string SignatureOf(std::string_view hidden) {
  if (hidden.empty()) return std::string(kPlain);
  return std::string(kCarrying) + absl::Base64Escape(absl::string_view(hidden.data(), hidden.size()));
}

std::string ThinkingIn(std::string_view signature) {
  if (!signature.starts_with(kCarrying)) return "";
  signature.remove_prefix(kCarrying.size());
  std::string text;
  if (!absl::Base64Unescape(absl::string_view(signature.data(), signature.size()), &text)) return "";
  // A message's text is UTF-8, and JSON knows no other.
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return Json::parse(json).get<std::string>() == text ? text : "";
}

}  // namespace baton::gateway
