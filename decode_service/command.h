// The command line of baton-decode: from its flags to the worker's end. For main() only, which says what
// stands behind the links.
#pragma once

#include "decode_service/server.h"

namespace baton::decode_service {

// `options`: the flags' defaults, and what no flag sets. Returns the exit code. First of all, before there is
// another thread.
int RunCommand(int argc, char** argv, ServerOptions options);

}  // namespace baton::decode_service
