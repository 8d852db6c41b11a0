#include "router/api/wire.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/status.h"
#include "router/api/inflate.h"

namespace baton::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kMaxDepth = 100;  // protobuf's own limit

// "conversation.messages[2].content: not UTF-8 at byte 5", or empty if every string in `bytes` is
// well-formed. Copies nothing, and makes names only on the way back from what it found: the message may be
// large, and nested as deep as it likes.
std::string FindBadString(const Descriptor& type, std::string_view bytes, int depth) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  std::map<int, int> seen;  // of repeated fields: the index of the next one
  while (const uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        field == nullptr) {
      if (!WireFormatLite::SkipField(&in, tag)) return "";
      continue;
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size)) return "";
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    if (size > bytes.size() - begin || !in.Skip(static_cast<int>(size))) return "";
    const std::string_view value = bytes.substr(begin, size);
    const int index = field->is_repeated() ? seen[field->number()]++ : 0;
    std::string found;
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (const auto at = FirstInvalidUtf8(value)) found = fmt::format(": not UTF-8 at byte {}", *at);
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      found = FindBadString(*field->message_type(), value, depth + 1);
      if (!found.empty()) found = fmt::format(".{}", found);
    }
    if (found.empty()) continue;
    return std::string(field->name()) + (field->is_repeated() ? fmt::format("[{}]", index) : "") + found;
  }
  return "";
}

absl::Status TooLarge(size_t bytes, std::string_view inflated, size_t most) {
  return rpc::WithReason(
      absl::InvalidArgumentError(fmt::format(
          "the request has {} bytes{}, and at most {} are taken: shorten it", bytes, inflated, most)),
      v1::REASON_REQUEST_TOO_LARGE);
}

}  // namespace

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message, size_t most) {
  if (bytes.Length() > most) return TooLarge(bytes.Length(), "", most);
  std::vector<grpc::Slice> slices;
  std::string joined;
  const uint8_t* data = nullptr;
  size_t size = 0;
  if (bytes.Valid()) {
    if (!bytes.Dump(&slices).ok()) return absl::InternalError("can't read the request's bytes");
    if (slices.size() == 1) {
      data = slices[0].begin();
      size = slices[0].size();
    } else {
      joined.reserve(bytes.Length());
      for (const grpc::Slice& slice : slices)
        joined.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
      data = reinterpret_cast<const uint8_t*>(joined.data());
      size = joined.size();
    }
  }
  std::string_view all(reinterpret_cast<const char*>(data), size);
  std::string inflated;
  if (IsGzip(all)) {
    const size_t stated = StatedBytes(all);
    if (stated > most && CanHold(all.size(), stated)) return TooLarge(stated, " once it is inflated", most);
    BATON_ASSIGN_OR_RETURN(inflated, Inflate(all));
    all = inflated;
  }
  if (message->ParseFromArray(all.data(), static_cast<int>(all.size()))) return absl::OkStatus();
  const std::string bad = FindBadString(*message->GetDescriptor(), all, 0);
  if (!bad.empty()) return absl::InvalidArgumentError(bad);
  return absl::InvalidArgumentError(
      fmt::format("the request is not a well-formed {} (or nests deeper than {})",
                  std::string(message->GetDescriptor()->full_name()), kMaxDepth));
}

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

std::optional<size_t> FirstInvalidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = bytes[i];
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // Continuation bytes that follow, and the bounds of the first of them.
    size_t more = 0;
    uint8_t low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    for (size_t k = 1; k <= more; ++k) {
      if (i + k >= text.size() || bytes[i + k] < low || bytes[i + k] > high) return i;
      low = 0x80;
      high = 0xBF;
    }
    i += more + 1;
  }
  return std::nullopt;
}

}  // namespace baton::router
