// A GET over a socket of its own: the page as it came, headers included; empty without an answer. Any thread.
#pragma once

#include <string>

namespace baton::e2e {

std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace baton::e2e
