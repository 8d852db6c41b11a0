// The members of a SamplingTrace by their names, as clients over HTTP and readers of `baton explain --json`
// get them. Pure.
#pragma once

#include <string_view>

#include "baton/v1/generation.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// A list of numbers.
Json BytesJson(std::string_view bytes);

// `uniform` is null where nothing was drawn.
Json TraceJson(const v1::SamplingTrace& trace);

}  // namespace baton::gateway
