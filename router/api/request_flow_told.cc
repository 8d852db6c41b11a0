// Workers of an older version do not tell all that a request may ask for: it ends then, rather than being
// answered with less.
#include "router/api/request_flow.h"

namespace baton::router {

bool RequestFlow::CheckPromptTold(Actions* actions) {
  const baton::fleet::v1::DecodeRequest& request = prepared_.request;
  if (!request.output().prompt_logprobs() ||
      prompt_logprobs_sent_ == static_cast<uint32_t>(request.token_ids_size())) {
    return true;
  }
  EndWith(absl::UnimplementedError(
              "output.prompt_logprobs: the worker that computed the prompt does not tell them, it is of an "
              "older version: try again once the workers have been updated"),
          actions);
  return false;
}

bool RequestFlow::CheckTraced(const v1::Delta& delta, Actions* actions) {
  if (!prepared_.request.output().explain() || delta.sampling_size() == static_cast<int>(delta.tokens())) {
    return true;
  }
  EndWith(
      absl::UnimplementedError(
          "output.explain: the worker that writes the answer does not tell how tokens are chosen, it is of "
          "an older version: try again once the workers have been updated"),
      actions);
  return false;
}

}  // namespace baton::router
