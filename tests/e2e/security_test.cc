// The whole of it, as an operator sets it up: `baton key new`, a tenants file, certificates, `baton serve`,
// and `baton generate` as two tenants and as strangers. At the end every log is searched for what must not be
// in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/serve/child.h"
#include "common/base/check.h"
#include "common/base/secret.h"
#include "tests/e2e/fleet.h"
#include "tests/integration/security/certificates.h"
#include "tests/patience.h"

namespace baton::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr char kBaton[] = BATON_BINARY_DIR "/bin/baton";
constexpr int kBatonPatienceMs = Scaled(240'000);
constexpr char kPromptSecret[] = "Zanzibar";

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

Outcome RunBaton(const Arguments& arguments) {
  auto child = cli::Child::Spawn(kBaton, arguments);
  BATON_CHECK(child.ok()) << child.status();
  Outcome outcome;
  std::optional<cli::ExitStatus> status;
  const auto read_all = [&] {
    char buffer[4096];
    for (auto [fd, text] :
         {std::pair(child->output_fd(), &outcome.out), std::pair(child->error_fd(), &outcome.err)}) {
      for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
        text->append(buffer, static_cast<size_t>(n));
    }
  };
  while (!status.has_value()) {
    pollfd fds[3] = {
        {child->ended_fd(), POLLIN, 0}, {child->output_fd(), POLLIN, 0}, {child->error_fd(), POLLIN, 0}};
    BATON_CHECK(poll(fds, 3, kBatonPatienceMs) > 0) << "baton does not end";
    read_all();
    status = child->Reap();
  }
  read_all();
  outcome.code = status->value;
  return outcome;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class SecurityE2eTest : public ::testing::Test {
 protected:
  SecurityE2eTest() : folder_(fs::path(::testing::TempDir()) / ("security_" + RandomHex(6))) {
    fs::create_directories(folder_ / "logs");
    std::ofstream(folder_ / "fleet.key") << fleet_key_ << "\n";
  }
  ~SecurityE2eTest() override {
    serve_.reset();
    fs::remove_all(folder_);
  }

  // A key for a tenant: into a file, and the line for the tenants file back.
  std::string NewKey(const std::string& tenant) {
    const Outcome made = RunBaton({"key", "new", "--tenant", tenant, "--key-file", KeyFile(tenant)});
    BATON_CHECK(made.code == 0) << made.err;
    const size_t begin = made.out.find("{\"id\"");
    return made.out.substr(begin, made.out.find('}', begin) + 1 - begin);
  }
  std::string KeyFile(const std::string& tenant) const { return folder_ / (tenant + ".key"); }

  void Serve(const std::string& tenants) {
    std::ofstream(folder_ / "tenants.json") << tenants;
    const rpc::PairFiles pair = authority_.Issue("party");
    const Arguments arguments = {"serve",
                                 "--model",
                                 kModel,
                                 "--threads",
                                 "1",
                                 "--kv-memory",
                                 "64MiB",
                                 "--listen",
                                 "127.0.0.1:0",
                                 "--metrics",
                                 "127.0.0.1:0",
                                 "--json",
                                 "--log-dir",
                                 folder_ / "logs",
                                 "--log-level",
                                 "debug",
                                 "--start-timeout",
                                 std::to_string(Scaled(4)) + "m",
                                 "--exit-with-parent",
                                 "--tenants",
                                 folder_ / "tenants.json",
                                 "--fleet-key-file",
                                 folder_ / "fleet.key",
                                 "--tls-cert",
                                 pair.cert,
                                 "--tls-key",
                                 pair.key,
                                 "--tls-ca",
                                 authority_.ca(),
                                 "--tls-peer-name",
                                 "party"};
    auto child = cli::Child::Spawn(kBaton, arguments);
    BATON_CHECK(child.ok()) << child.status();
    serve_ = std::make_unique<cli::Child>(*std::move(child));
    std::string line;
    while (line.find('\n') == std::string::npos) {
      pollfd fds[2] = {{serve_->output_fd(), POLLIN, 0}, {serve_->ended_fd(), POLLIN, 0}};
      BATON_CHECK(poll(fds, 2, kBatonPatienceMs) > 0 && fds[1].revents == 0)
          << "serve is not ready: " << Logs();
      char buffer[4096];
      for (ssize_t n; (n = read(serve_->output_fd(), buffer, sizeof(buffer))) > 0;) {
        line.append(buffer, static_cast<size_t>(n));
      }
    }
    announced_ = Json::parse(line);
  }
  // `baton generate` with these flags on top.
  Outcome Generate(const Arguments& more, bool tls = true) {
    Arguments all = {"generate",
                     "--server",
                     announced_["router"],
                     "--prompt",
                     std::string("The capital of the island of ") + kPromptSecret +
                         " is a town of stone, coral and carved doors, and its name is",
                     "--max-tokens",
                     "4",
                     "--temperature",
                     "0",
                     "--json",
                     "--timeout",
                     std::to_string(Scaled(2)) + "m"};
    if (tls) all.insert(all.end(), {"--tls-ca", authority_.ca()});
    all.insert(all.end(), more.begin(), more.end());
    return RunBaton(all);
  }
  // Cached prompt tokens of an answer as this tenant.
  int64_t Cached(const std::string& tenant) {
    const Outcome outcome = Generate({"--api-key-file", KeyFile(tenant)});
    EXPECT_EQ(outcome.code, 0) << outcome.err << Logs();
    if (outcome.code != 0) return -1;
    const Json usage = Json::parse(outcome.out)["choices"][0]["usage"];
    return usage["decode_cached_tokens"].get<int64_t>() + usage["prefill_cached_tokens"].get<int64_t>();
  }
  std::string Logs() const {
    std::string all;
    for (const auto& entry : fs::directory_iterator(folder_ / "logs")) all += ReadFile(entry.path());
    return all;
  }
  std::string AddressOf(const std::string& process) {
    for (const Json& one : announced_["processes"]) {
      if (one["name"] == process) return one["grpc"];
    }
    BATON_CHECK(false) << process;
    return "";
  }

  const fs::path folder_;
  const std::string fleet_key_ = RandomHex(32);
  rpc::Authority authority_{"fleet"};
  std::unique_ptr<cli::Child> serve_;
  Json announced_;
};

// Names that the router would refuse in the tenants file are refused when the key is made.
TEST_F(SecurityE2eTest, AKeyForANameThatTheRouterRefuses) {
  for (const std::string name : {"a b", "other"}) {
    const Outcome made = RunBaton({"key", "new", "--tenant", name, "--key-file", KeyFile("refused")});
    EXPECT_EQ(made.code, 2) << made.out << made.err;
    EXPECT_NE(made.err.find("1 to 64 letters"), std::string::npos) << made.err;
    EXPECT_FALSE(std::filesystem::exists(KeyFile("refused")));
  }
}

TEST_F(SecurityE2eTest, TenantsKeepApartStrangersKeepOutAndLogsKeepSilent) {
  const std::string a = NewKey("a"), b = NewKey("b");
  Serve(R"({"tenants": [{"name": "a", "keys": [)" + a + R"(]}, {"name": "b", "keys": [)" + b + "]}]}");

  EXPECT_EQ(Cached("a"), 0);
  EXPECT_GT(Cached("a"), 0) << "its own prefix";
  EXPECT_EQ(Cached("b"), 0) << "another's prefix can't be hit";
  EXPECT_GT(Cached("b"), 0);

  const Outcome keyless = Generate({});
  EXPECT_EQ(keyless.code, 1);
  EXPECT_THAT(keyless.err, HasSubstr("--api-key-file"));
  std::ofstream(folder_ / "wrong.key") << "bk_000000000000_" << RandomHex(32);
  EXPECT_EQ(Generate({"--api-key-file", folder_ / "wrong.key"}).code, 1);
  EXPECT_EQ(Generate({"--api-key-file", KeyFile("a")}, /*tls=*/false).code, 1) << "plain";

  // A client's way past the router, with a certificate that the fleet's authority signed for something else.
  const rpc::PairFiles client = authority_.Issue("client");
  const Outcome past =
      RunBaton({"generate", "--server", AddressOf("decode-0"), "--tls-ca", authority_.ca(), "--prompt", "x"});
  EXPECT_EQ(past.code, 1) << "no certificate";
  EXPECT_EQ(RunBaton({"health", "--server", AddressOf("decode-0")}).code, 1) << "plain";
  EXPECT_EQ(RunBaton({"health", "--server", AddressOf("decode-0"), "--tls-ca", authority_.ca(), "--tls-cert",
                      client.cert, "--tls-key", client.key})
                .code,
            0)
      << "the control: the worker lives and knows the authority";

  serve_->Signal(SIGTERM);
  while (!serve_->Reap().has_value()) {
    pollfd ended = {serve_->ended_fd(), POLLIN, 0};
    ASSERT_GT(poll(&ended, 1, kBatonPatienceMs), 0) << "serve does not end";
  }
  const std::string logs = Logs();
  EXPECT_THAT(logs, HasSubstr("tenants.json: 2 tenants")) << "the control: these are the logs";
  EXPECT_THAT(logs, Not(HasSubstr(kPromptSecret)));
  EXPECT_THAT(logs, Not(HasSubstr(fleet_key_)));
  for (const char* tenant : {"a", "b"}) {
    std::string key = ReadFile(KeyFile(tenant));
    key.erase(key.find_last_not_of('\n') + 1);
    EXPECT_THAT(logs, Not(HasSubstr(key)));
    EXPECT_THAT(logs, Not(HasSubstr(key.substr(16)))) << "the secret half";
  }
}

}  // namespace
}  // namespace baton::e2e
