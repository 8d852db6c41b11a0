#include "gateway/mapping/sampling_json.h"

#include <utility>

namespace baton::gateway {
namespace {

std::string_view HowName(v1::SamplingTrace::How how) {
  switch (how) {
    case v1::SamplingTrace::HOW_DRAWN:
      return "drawn";
    case v1::SamplingTrace::HOW_GREEDY:
      return "greedy";
    case v1::SamplingTrace::HOW_FORCED:
      return "forced";
    default:
      return "unspecified";
  }
}

}  // namespace

Json BytesJson(std::string_view bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Json TraceJson(const v1::SamplingTrace& trace) {
  Json likeliest = Json::array();
  for (const v1::TokenTrace& token : trace.likeliest()) {
    likeliest.push_back({{"token", token.bytes()},
                         {"bytes", BytesJson(token.bytes())},
                         {"token_id", token.token_id()},
                         {"logit", token.logit()},
                         {"adjusted_logit", token.adjusted_logit()},
                         {"probability", token.probability()},
                         {"tempered_probability", token.tempered_probability()},
                         {"drawn_probability", token.drawn_probability()}});
  }
  return {{"how", HowName(trace.how())},
          {"token_id", trace.token_id()},
          {"vocabulary", trace.vocabulary()},
          {"after_constraint", trace.after_constraint()},
          {"after_temperature", trace.after_temperature()},
          {"after_top_k", trace.after_top_k()},
          {"after_top_p", trace.after_top_p()},
          {"after_min_p", trace.after_min_p()},
          {"uniform", trace.has_uniform() ? Json(trace.uniform()) : Json(nullptr)},
          {"likeliest", std::move(likeliest)}};
}

}  // namespace baton::gateway
