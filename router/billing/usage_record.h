// UsageRecord: what is kept of one request when it has ended: who asked, how it ended, what it used and what
// it cost. It holds nothing of what was said. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/billing/token_counts.h"

namespace baton::router::billing {

struct UsageRecord {
  absl::Time ended;  // by the calendar
  std::string request_id;
  std::string client_request_id;  // the client's own name for it; empty: none
  std::string trace_id;           // in hexadecimal; empty: none
  // A method of baton.v1.Inference: "Chat", "ChatUnary", "Generate", "GenerateUnary" or "Moderate"; or of
  // another protocol.
  std::string method;
  std::string tenant;  // empty: the caller was refused
  std::string key;     // id of the API key, or the name in the certificate; empty: anonymous
  std::string model;   // empty: the request was refused before one was found
  std::string build;   // v1::Started.build; empty: no worker accepted the request
  absl::StatusCode code = absl::StatusCode::kOk;
  // Reasons of the choices that ended well, in the order in which they did.
  std::vector<std::string> finish_reasons;
  // A worker accepted the request, so what it used counts.
  bool counted = false;
  TokenCounts tokens;
  // Set for an answer that several calls may compute: its use in all, of which `tokens` came by this one.
  struct Answer {
    std::string name;  // unique among all answers, on all routers
    TokenCounts tokens;
    int64_t prompt_picos = 0, rest_picos = 0;
    bool whole = false;  // whatever became of the call
  };
  std::optional<Answer> answer;
  // Empty: the model had no price.
  std::string currency;
  int64_t picos = 0;
  // Seconds.
  std::optional<double> ttft;
  double e2e = 0;
  // A classifier's findings for all choices together; nothing: none was asked. Its tokens are in no other
  // count.
  struct Moderation {
    bool flagged = false;
    bool input = false;
    bool unavailable = false;
    std::vector<std::string> categories;
    int64_t tokens = 0;
  };
  std::optional<Moderation> moderation;
  // Workers of the choice that was placed, or ended, last.
  std::string decode_worker, prefill_worker;
  int migrations = 0;
  // How the conversation was made to fit into the context (v1::Overflow); 0: unchanged.
  int64_t removed_context_tokens = 0;
  int64_t clamped_max_tokens = 0;
};

// One line of JSON with a newline behind it. Times are in UTC, the cost is decimal text.
std::string AuditLine(const UsageRecord& record);

}  // namespace baton::router::billing
