// Http1Connection: a client that speaks HTTP/1.1: a request, its answer, again. For opening.cc: Boost is slow
// to compile.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <string>

#include "gateway/http/site.h"
#include "gateway/http/wire.h"

namespace baton::gateway::http {

// `read`: what came already. It begins at once.
std::shared_ptr<Connection> BeginHttp1(Site& site, std::unique_ptr<Wire> wire, std::string address,
                                       boost::beast::flat_buffer read);

}  // namespace baton::gateway::http
