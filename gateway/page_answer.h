// PageAnswer: a file of the page for people (--page). Nothing in it comes from elsewhere, nor may it.
#pragma once

#include <optional>

#include "gateway/http/exchange.h"

namespace baton::gateway {

// Nothing: there is no such file.
std::optional<http::Response> PageAnswer(const http::Request& request);

}  // namespace baton::gateway
