#include "gateway/mapping/sse.h"

namespace baton::gateway {
namespace {

const char* NameOf(v1::Progress::State state) {
  switch (state) {
    case v1::Progress::STATE_FETCHING:
      return "fetching";
    case v1::Progress::STATE_COMPUTING:
      return "computing";
    case v1::Progress::STATE_SHIPPING:
      return "shipping";
    default:
      return "queued";
  }
}

}  // namespace

std::string ProgressComment(const v1::Progress& progress) {
  Json json = {{"state", NameOf(progress.state())},
               {"requests_ahead", progress.requests_ahead()},
               {"prompt_tokens_done", progress.prompt_tokens_done()},
               {"prompt_tokens", progress.prompt_tokens()},
               {"cached_tokens", progress.cached_tokens()}};
  if (progress.has_predicted_seconds()) json["predicted_seconds"] = progress.predicted_seconds();
  return ": progress " + Dump(json) + "\n\n";
}

}  // namespace baton::gateway
