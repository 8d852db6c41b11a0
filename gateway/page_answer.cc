#include "gateway/page_answer.h"

#include <string>

#include "gateway/page/files.h"

namespace baton::gateway {

std::optional<http::Response> PageAnswer(const http::Request& request) {
  if (request.method != "GET" && request.method != "HEAD") return std::nullopt;
  const std::string name = request.path == "/" ? "index.html" : request.path.substr(1);
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (file.name != name) continue;
    http::Response response{.body = std::string(file.text)};
    response.content_type = name.ends_with(".js")    ? "text/javascript; charset=utf-8"
                            : name.ends_with(".css") ? "text/css; charset=utf-8"
                                                     : "text/html; charset=utf-8";
    response.headers = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-cache"}};
    return response;
  }
  return std::nullopt;
}

}  // namespace baton::gateway
