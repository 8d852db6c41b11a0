// Server-sent events (WHATWG HTML, section 9.2). Pure functions.
#pragma once

#include <string>

#include "baton/v1/generation.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

inline constexpr char kEventStream[] = "text/event-stream";
// Says nothing: it keeps proxies from closing a connection on which a client waits.
inline constexpr char kComment[] = ": waiting\n\n";

// JSON of text that came from a model: what is not UTF-8 becomes U+FFFD.
inline std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

inline std::string Event(const Json& data) { return "data: " + Dump(data) + "\n\n"; }
inline std::string Event(const std::string& name, const Json& data) {
  return "event: " + name + "\n" + Event(data);
}

// A comment, which clients skip that don't know it: ": progress " and JSON of the message, in its fields'
// names.
std::string ProgressComment(const v1::Progress& progress);

}  // namespace baton::gateway
