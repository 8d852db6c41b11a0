#include "common/telemetry/gzip.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace baton::telemetry {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

bool AcceptsGzip(std::string_view accept_encoding) {
  for (size_t begin = 0; begin <= accept_encoding.size();) {
    const size_t end = std::min(accept_encoding.find(',', begin), accept_encoding.size());
    const std::string_view coding = accept_encoding.substr(begin, end - begin);
    begin = end + 1;
    const size_t parameters = std::min(coding.find(';'), coding.size());
    if (Trimmed(coding.substr(0, parameters)) != "gzip") continue;
    const size_t weight = coding.find("q=", parameters);
    return weight == std::string_view::npos ||
           std::strtod(std::string(coding.substr(weight + 2)).c_str(), nullptr) > 0;
  }
  return false;
}

std::string Gzip(std::string_view text) {
  // Too large for the stack.
  const auto stream = std::make_unique<isal_zstream>();
  isal_deflate_stateless_init(stream.get());
  stream->gzip_flag = IGZIP_GZIP;
  stream->end_of_stream = 1;
  // Stored blocks, the worst case, add 5 bytes to every 65,535; header and trailer take 18.
  std::string out(text.size() + text.size() / 8 + 64, '\0');
  std::string in(text);  // the library takes no pointer to const
  stream->next_in = reinterpret_cast<uint8_t*>(in.data());
  stream->avail_in = static_cast<uint32_t>(in.size());
  stream->next_out = reinterpret_cast<uint8_t*>(out.data());
  stream->avail_out = static_cast<uint32_t>(out.size());
  if (isal_deflate_stateless(stream.get()) != COMP_OK) return "";
  out.resize(stream->total_out);
  return out;
}

}  // namespace baton::telemetry
