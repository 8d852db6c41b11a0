// Traces of real processes: one request is one trace through router, decode worker and prefill worker, whose
// phases are those that the client is told, and a collector that is away costs nobody anything.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/fleet.h"
#include "tests/fakes/fake_collector.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

using nlohmann::json;
using telemetry::AttributeOf;
using telemetry::FakeCollector;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c", kClientSpan[] = "b7ad6b7169203331";

std::vector<int32_t> TracedPrompt(int size, int seed) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(20 + (i * 37 + seed * 89 + i * seed) % 1990);
  return prompt;
}

FleetOptions Exporting(const std::string& url, int prefill = 1) {
  FleetOptions options{.prefill = prefill};
  for (auto* flags : {&options.prefill_flags, &options.decode_flags, &options.router_flags}) {
    *flags = {"--otlp", url};
  }
  // It hands prompts off whatever that is predicted to cost.
  options.router_flags.insert(options.router_flags.end(), {"--policy", "round_robin"});
  return options;
}

std::string Parent(bool sampled, const std::string& trace = kTrace) {
  return "00-" + trace + "-" + kClientSpan + (sampled ? "-01" : "-00");
}

v1::Finished Ask(Fleet& fleet, const v1::GenerateRequest& request, const std::string& traceparent) {
  grpc::ClientContext context;
  if (!traceparent.empty()) {
    context.AddMetadata("traceparent", traceparent);
    context.AddMetadata("tracestate", "shop=7");
  }
  v1::Finished finished;
  const auto reader = fleet.stub().Generate(&context, request);
  for (v1::GenerateResponse response; reader->Read(&response);) {
    if (response.has_finished()) finished = response.finished();
  }
  EXPECT_TRUE(reader->Finish().ok());
  return finished;
}

// All processes leave, and their last spans with them.
void Leave(Fleet& fleet, bool with_prefill = true) {
  std::vector<Process*> processes = {&fleet.router(), &fleet.decode()};
  if (with_prefill) processes.push_back(&fleet.prefill());
  for (Process* process : processes) {
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait().value, 0);
  }
}

double SecondsOf(const json& span) {
  int64_t start = 0, end = 0;
  EXPECT_TRUE(absl::SimpleAtoi(span["startTimeUnixNano"].get<std::string>(), &start));
  EXPECT_TRUE(absl::SimpleAtoi(span["endTimeUnixNano"].get<std::string>(), &end));
  return static_cast<double>(end - start) * 1e-9;
}

std::string ServiceOf(const json& span) { return span["resource"][0]["value"]["stringValue"]; }

// The spans of a trace by their names.
std::map<std::string, json> ByName(const std::vector<json>& spans, const std::string& trace) {
  std::map<std::string, json> named;
  for (const json& span : spans) {
    if (span["traceId"] != trace) continue;
    EXPECT_TRUE(named.emplace(span["name"], span).second) << span["name"] << " twice";
  }
  return named;
}

// Every span but the first has a parent among them and begins after it; one of the parent's own process ends
// before it, too. (A worker learns that the router has all of an answer when it gets a processor, and that
// may be after the router's span has ended.)
void ExpectNested(const std::map<std::string, json>& named) {
  std::map<std::string, json> by_id;
  for (const auto& [name, span] : named) by_id[span["spanId"]] = span;
  // Each process reads this machine's clock once and counts from there, and the clock may be corrected in
  // between.
  constexpr int64_t kClocks = 100'000'000;
  for (const auto& [name, span] : named) {
    if (name == "router.request") continue;
    SCOPED_TRACE(name);
    ASSERT_TRUE(by_id.contains(span["parentSpanId"])) << "its parent is not there";
    const json& parent = by_id[span["parentSpanId"]];
    const auto nanos = [](const json& one, const char* field) {
      return std::stoll(one[field].get<std::string>());
    };
    EXPECT_GE(nanos(span, "startTimeUnixNano"), nanos(parent, "startTimeUnixNano") - kClocks);
    if (ServiceOf(span) == ServiceOf(parent)) {
      EXPECT_LE(nanos(span, "endTimeUnixNano"), nanos(parent, "endTimeUnixNano") + kClocks);
    }
  }
}

TEST(TracingTest, ARequestIsOneTraceThroughAllProcesses) {
  FakeCollector collector;
  const std::string audit = ::testing::TempDir() + "/tracing_audit_" + std::to_string(getpid());
  std::filesystem::remove(audit);
  FleetOptions options = Exporting(collector.url());
  options.router_flags.insert(options.router_flags.end(), {"--audit-log", audit});
  v1::Finished finished;
  {
    Fleet fleet(options);
    // One that is not to be recorded goes first: it would be in the collector by the time that the other is.
    Ask(fleet, TokenRequest(TracedPrompt(200, 2), 4), Parent(false, "ffffffffffffffffffffffffffffffff"));
    finished = Ask(fleet, TokenRequest(TracedPrompt(300, 1), 12), Parent(true));
    EXPECT_FALSE(finished.relay().prefill_worker().empty()) << "it was to be handed off";
    ASSERT_TRUE(collector.AwaitSpans([](const auto& spans) { return ByName(spans, kTrace).size() >= 3; }));
    Leave(fleet);
  }
  const std::map<std::string, json> named = ByName(collector.spans(), kTrace);
  std::map<std::string, std::string> services;
  for (const auto& [name, span] : named) services[name] = ServiceOf(span);
  EXPECT_EQ(services, (std::map<std::string, std::string>{{"router.request", "baton-router"},
                                                          {"router.admit", "baton-router"},
                                                          {"router.place", "baton-router"},
                                                          {"first_token", "baton-router"},
                                                          {"decode.request", "baton-decode"},
                                                          {"decode.queue", "baton-decode"},
                                                          {"transfer", "baton-decode"},
                                                          {"decode", "baton-decode"},
                                                          {"prefill", "baton-prefill"},
                                                          {"prefill.queue", "baton-prefill"},
                                                          {"prefill.compute", "baton-prefill"}}));
  ExpectNested(named);
  EXPECT_EQ(named.at("router.request")["parentSpanId"], kClientSpan);
  EXPECT_EQ(named.at("decode.request")["parentSpanId"], named.at("router.request")["spanId"]);
  EXPECT_EQ(named.at("prefill")["parentSpanId"], named.at("decode.request")["spanId"]);
  for (const auto& [name, span] : named) EXPECT_EQ(span["traceState"], "shop=7") << name;

  // The phases are those of the answer.
  const v1::Timing& timing = finished.timing();
  constexpr double kRounding = 2e-6;
  EXPECT_NEAR(SecondsOf(named.at("router.admit")), timing.admit_seconds(), kRounding);
  EXPECT_NEAR(SecondsOf(named.at("decode.queue")), timing.decode_queue_seconds(), kRounding);
  EXPECT_NEAR(SecondsOf(named.at("prefill.queue")), timing.prefill_queue_seconds(), kRounding);
  EXPECT_NEAR(SecondsOf(named.at("prefill.compute")), timing.prefill_seconds(), kRounding);
  EXPECT_NEAR(SecondsOf(named.at("transfer")), timing.transfer_seconds(), kRounding);
  EXPECT_NEAR(SecondsOf(named.at("first_token")), timing.first_token_seconds(), kRounding);
  // The span ends when the answer has left, which its own text could not tell.
  EXPECT_GE(SecondsOf(named.at("router.request")), timing.e2e_seconds() - kRounding);

  const json& whole = named.at("router.request");
  EXPECT_EQ(AttributeOf(whole, "gen_ai.request.model")["stringValue"], "baton-tiny");
  EXPECT_EQ(AttributeOf(whole, "gen_ai.usage.input_tokens")["intValue"], "300");
  EXPECT_EQ(AttributeOf(whole, "gen_ai.usage.output_tokens")["intValue"], "12");
  EXPECT_EQ(AttributeOf(whole, "rpc.method")["stringValue"], "Generate");
  EXPECT_EQ(AttributeOf(whole, "rpc.grpc.status_code")["intValue"], "0");

  for (const json& span : collector.spans())
    EXPECT_EQ(span["traceId"], kTrace) << "it was not to be recorded";
  std::vector<std::string> lines;
  std::ifstream file(audit);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line)["trace_id"]);
  EXPECT_EQ(lines, (std::vector<std::string>{"ffffffffffffffffffffffffffffffff", kTrace}));
  std::filesystem::remove(audit);
}

TEST(TracingTest, APromptThatIsComputedWhereItIsUsedHasItsPhasesThere) {
  FakeCollector collector;
  v1::Finished finished;
  {
    Fleet fleet(Exporting(collector.url(), /*prefill=*/0));
    finished = Ask(fleet, TokenRequest(TracedPrompt(300, 1), 8), Parent(true));
    Leave(fleet, false);
  }
  const std::map<std::string, json> named = ByName(collector.spans(), kTrace);
  ASSERT_TRUE(named.contains("prefill.compute"));
  EXPECT_EQ(ServiceOf(named.at("prefill.compute")), "baton-decode");
  EXPECT_FALSE(named.contains("transfer"));
  ExpectNested(named);
  EXPECT_NEAR(SecondsOf(named.at("prefill.queue")), finished.timing().prefill_queue_seconds(), 2e-6);
  EXPECT_NEAR(SecondsOf(named.at("prefill.compute")), finished.timing().prefill_seconds(), 2e-6);
}

TEST(TracingTest, WithoutATraceOrWithABrokenOneARequestBeginsItsOwn) {
  FakeCollector collector;
  {
    Fleet fleet(Exporting(collector.url()));
    Ask(fleet, TokenRequest(TracedPrompt(200, 1), 4), "");
    Ask(fleet, TokenRequest(TracedPrompt(200, 2), 4), "00-" + std::string(kTrace) + "-0000000000000000-01");
    Leave(fleet);
  }
  std::map<std::string, std::set<std::string>> traces;
  for (const json& span : collector.spans()) {
    traces[span["traceId"]].insert(span["name"].get<std::string>());
    if (span["name"] == "router.request") {
      EXPECT_FALSE(span.contains("parentSpanId"));
    }
    EXPECT_FALSE(span.contains("traceState")) << "it belongs to the traceparent that was ignored";
  }
  EXPECT_EQ(traces.size(), 2u);
  EXPECT_FALSE(traces.contains(kTrace));
  for (const auto& [trace, spans] : traces) EXPECT_EQ(spans.size(), 11u) << trace;
}

TEST(TracingTest, ACollectorThatIsAwayCostsARequestNothing) {
  std::string url;
  { url = FakeCollector().url(); }  // nobody listens there any more
  Fleet fleet(Exporting(url));
  for (int i = 0; i < 3; ++i) {
    const v1::Finished finished = Ask(fleet, TokenRequest(TracedPrompt(200, i), 4), Parent(true));
    EXPECT_EQ(finished.reason(), v1::FINISH_REASON_LENGTH);
  }
  for (Process* process : {&fleet.router(), &fleet.decode(), &fleet.prefill()}) {
    const std::string dropped = "baton_trace_spans_dropped_total{reason=\"collector\"}";
    Await([&] { return Metric(*process, dropped) > 0; }, dropped);
  }
}

}  // namespace
}  // namespace baton::e2e
