// gzip (RFC 1952) for pages that a client accepts compressed. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace baton::telemetry {

// True if the value of an Accept-Encoding header (RFC 9110, 12.5.3) names gzip, with a weight above 0 or
// none.
bool AcceptsGzip(std::string_view accept_encoding);

// Empty if `text` can't be compressed into a little more than its own size, which does not happen.
std::string Gzip(std::string_view text);

}  // namespace baton::telemetry
