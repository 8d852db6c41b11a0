#include "common/rpc/status.h"

#include <string>
#include <string_view>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace baton::rpc {
namespace {

constexpr std::string_view kReasonPrefix = "REASON_";
constexpr char kDomain[] = "baton";
constexpr char kFleetDomain[] = "fleet.baton", kStarting[] = "STARTING";

// A detail of an Any, of the message's type.
template <typename Detail>
std::string UrlOf() {
  return "type.googleapis.com/" + std::string(Detail::descriptor()->full_name());
}

template <typename Detail>
void Set(const Detail& detail, absl::Status* status) {
  if (!status->ok()) status->SetPayload(UrlOf<Detail>(), absl::Cord(detail.SerializeAsString()));
}

// Nothing: it has none, or one that can't be read.
template <typename Detail>
std::optional<Detail> Get(const absl::Status& status) {
  const auto payload = status.GetPayload(UrlOf<Detail>());
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  google::rpc::Status details;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    auto* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  if (details.details().empty()) return grpc::Status(code, message);
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) result.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return result;
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  const int64_t nanos = absl::ToInt64Nanoseconds(delay);
  info.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  Set(info, &status);
  return status;
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  const auto info = Get<google::rpc::RetryInfo>(status);
  if (!info.has_value()) return std::nullopt;
  return absl::Seconds(info->retry_delay().seconds()) + absl::Nanoseconds(info->retry_delay().nanos());
}

absl::Status WithReason(absl::Status status, v1::Reason reason,
                        const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(v1::Reason_Name(reason).substr(kReasonPrefix.size()));
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  Set(info, &status);
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto info = Get<google::rpc::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

bool HasReason(const absl::Status& status, v1::Reason reason) {
  return std::string(kReasonPrefix) + ReasonOf(status) == v1::Reason_Name(reason);
}

std::string ReasonMetadata(const absl::Status& status, const std::string& name) {
  const auto info = Get<google::rpc::ErrorInfo>(status);
  if (!info.has_value()) return "";
  const auto found = info->metadata().find(name);
  return found == info->metadata().end() ? "" : found->second;
}

absl::Status WithField(absl::Status status, std::string_view field, std::string_view description) {
  google::rpc::BadRequest request;
  auto* violation = request.add_field_violations();
  violation->set_field(std::string(field));
  violation->set_description(std::string(description));
  Set(request, &status);
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto request = Get<google::rpc::BadRequest>(status);
  if (!request.has_value() || request->field_violations().empty()) return "";
  return request->field_violations(0).field();
}

absl::Status WithQuota(absl::Status status, std::string_view subject, std::string_view description) {
  google::rpc::QuotaFailure failure;
  auto* violation = failure.add_violations();
  violation->set_subject(std::string(subject));
  violation->set_description(std::string(description));
  Set(failure, &status);
  return status;
}

std::string QuotaOf(const absl::Status& status) {
  const auto failure = Get<google::rpc::QuotaFailure>(status);
  return failure.has_value() && !failure->violations().empty() ? failure->violations(0).subject() : "";
}

absl::Status StartingError() {
  absl::Status status = absl::UnavailableError("it is starting: it loads its model");
  google::rpc::ErrorInfo info;
  info.set_reason(kStarting);
  info.set_domain(kFleetDomain);
  Set(info, &status);
  return status;
}

bool IsStarting(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return false;
  const auto info = Get<google::rpc::ErrorInfo>(status);
  return info.has_value() && info->domain() == kFleetDomain && info->reason() == kStarting;
}

absl::Status WithRequestId(absl::Status status, std::string_view id) {
  google::rpc::RequestInfo info;
  info.set_request_id(std::string(id));
  Set(info, &status);
  return status;
}

std::string RequestIdOf(const absl::Status& status) {
  const auto info = Get<google::rpc::RequestInfo>(status);
  return info.has_value() ? info->request_id() : "";
}

}  // namespace baton::rpc
