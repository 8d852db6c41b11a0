// `baton model pull` against a server with Hugging Face's interface, as much of it as is asked for.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/secret.h"
#include "tests/integration/cli/baton_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

std::string HexDigest(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  const Sha256Digest digest = hash.Finish();
  return ToHex(std::as_bytes(std::span(digest)));
}

// Answers one GET per connection from a table; honours "Range: bytes=N-".
class FileServer {
 public:
  FileServer() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    BATON_CHECK(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(socket_, 8) == 0);
    BATON_CHECK(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FileServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  const std::string& url() const { return url_; }
  void Put(const std::string& path, const std::string& body) {
    absl::MutexLock lock(&mutex_);
    bodies_[path] = body;
  }
  // Requests since the last call: "PATH RANGE AUTHORIZATION".
  std::vector<std::string> Asked() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(asked_, {});
  }

 private:
  static std::string Header(const std::string& request, const std::string& name) {
    const size_t at = request.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return request.substr(begin, request.find("\r\n", begin) - begin);
  }

  void Serve() {
    while (true) {
      const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      std::string request;
      char bytes[4096];
      for (ssize_t got;
           request.find("\r\n\r\n") == std::string::npos && (got = read(peer, bytes, sizeof(bytes))) > 0;) {
        request.append(bytes, static_cast<size_t>(got));
      }
      const std::string answer = Answer(request);
      for (size_t sent = 0; sent < answer.size();) {
        const ssize_t some = send(peer, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (some <= 0) break;
        sent += static_cast<size_t>(some);
      }
      close(peer);
    }
  }

  std::string Answer(const std::string& request) {
    const size_t begin = request.find(' ') + 1;
    const std::string path = request.substr(begin, request.find(' ', begin) - begin);
    const std::string range = Header(request, "Range");
    absl::MutexLock lock(&mutex_);
    asked_.push_back(absl::StrCat(path, " ", range, " ", Header(request, "Authorization")));
    const auto body = bodies_.find(path);
    if (body == bodies_.end())
      return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const size_t from = range.empty() ? 0 : std::stoul(range.substr(6));
    const std::string rest = body->second.substr(std::min(from, body->second.size()));
    const std::string status = range.empty()
                                   ? "200 OK"
                                   : absl::StrCat("206 Partial Content\r\nContent-Range: bytes ", from, "-",
                                                  body->second.size() - 1, "/", body->second.size());
    return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: ", rest.size(),
                        "\r\nConnection: close\r\n\r\n", rest);
  }

  const int socket_;
  std::string url_;
  std::thread thread_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> bodies_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

class PullTest : public ::testing::Test {
 protected:
  PullTest() : folder_(fs::path(::testing::TempDir()) / ("pull-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    List(HexDigest(weights_));
    server_.Put(absl::StrCat("/o/m/resolve/", kCommit, "/config.json"), "{}");
    server_.Put(absl::StrCat("/o/m/resolve/", kCommit, "/model.safetensors"), weights_);
  }
  ~PullTest() override { fs::remove_all(folder_); }

  void List(const std::string& sha256) {
    server_.Put("/api/models/o/m/revision/main?blobs=true",
                absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": [{"rfilename": "config.json"},
                             {"rfilename": "README.md"}, {"rfilename": "../evil.json"}, {"rfilename": "old/a.json"},
                             {"rfilename": "pytorch_model.bin"},
                             {"rfilename": "model.safetensors", "lfs": {"sha256": ")",
                             sha256, R"("}}]})"));
  }
  Outcome Pull(std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"model", "pull",       "o/m", "--endpoint", server_.url() + "/",
                                    "--to",  folder_ / "m"};
    all.insert(all.end(), more.begin(), more.end());
    return RunBaton(all);
  }
  std::string Read(const std::string& name) const {
    std::ifstream stream(folder_ / "m" / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  FileServer server_;
  const fs::path folder_;
  const std::string weights_ = std::string(300'000, 'w') + "end";
};

TEST_F(PullTest, FetchesWhatBatonReadsAndPrintsTheChartsValues) {
  const Outcome outcome = Pull();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            absl::StrCat("model:\n  name: \"m\"\n  source: huggingFace\n  huggingFace:\n    endpoint: \"",
                         server_.url(), "\"\n    repository: \"o/m\"\n    revision: \"", kCommit,
                         "\"\n    files:\n      config.json: \"", HexDigest("{}"),
                         "\"\n      model.safetensors: \"", HexDigest(weights_), "\"\n"));
  EXPECT_EQ(Read("config.json"), "{}");
  EXPECT_EQ(Read("model.safetensors"), weights_);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "m")) files += entry.is_regular_file();
  EXPECT_EQ(files, 2u) << "no drafts, nothing that Baton does not read";
}

TEST_F(PullTest, PullsWeightsOnceAndGoesOnWhereItWasInterrupted) {
  fs::create_directories(folder_ / "m");
  std::ofstream(folder_ / "m" / "model.safetensors.part", std::ios::binary) << weights_.substr(0, 1000);
  ASSERT_EQ(Pull().code, 0);
  EXPECT_EQ(Read("model.safetensors"), weights_);
  EXPECT_THAT(server_.Asked(), Contains(HasSubstr("model.safetensors bytes=1000-")));
  const Outcome again = Pull();
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("model.safetensors is up to date"));
  EXPECT_THAT(server_.Asked(), Not(Contains(HasSubstr("model.safetensors"))));
}

TEST_F(PullTest, FetchesOneGgufFile) {
  constexpr char kAll[] =
      R"([{"rfilename": "README.md"}, {"rfilename": "m-Q4_K_M.gguf"}, {"rfilename": "m-Q8_0.gguf"},
                             {"rfilename": "m-F32-00001-of-00002.gguf"}])";
  server_.Put("/api/models/o/m/revision/main?blobs=true",
              absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": )", kAll, "}"));
  server_.Put(absl::StrCat("/o/m/resolve/", kCommit, "/m-Q8_0.gguf"), "GGUF");
  const Outcome outcome = Pull({"--file", "m-Q8_0.gguf"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            absl::StrCat("model:\n  name: \"m-Q8_0\"\n  file: \"m-Q8_0.gguf\"\n  source: huggingFace\n"
                         "  huggingFace:\n    endpoint: \"",
                         server_.url(), "\"\n    repository: \"o/m\"\n    revision: \"", kCommit,
                         "\"\n    files:\n      m-Q8_0.gguf: \"", HexDigest("GGUF"), "\"\n"));
  EXPECT_THAT(outcome.err, HasSubstr((folder_ / "m" / "m-Q8_0.gguf").string()));
  EXPECT_EQ(Read("m-Q8_0.gguf"), "GGUF");

  const auto says = [&](std::vector<std::string> more) { return Pull(std::move(more)).err; };
  EXPECT_THAT(says({}), HasSubstr("choose a GGUF file with --file: m-Q4_K_M.gguf, m-Q8_0.gguf\n"));
  EXPECT_THAT(says({"--file", "m-Q5_0.gguf"}),
              HasSubstr("has no m-Q5_0.gguf; its GGUF files: m-Q4_K_M.gguf, m-Q8_0.gguf\n"));
  EXPECT_THAT(says({"--file", "m-F32-00001-of-00002.gguf"}), HasSubstr("merge them into one"));
  EXPECT_THAT(says({"--file", "../m.gguf"}), HasSubstr("is not the name of a GGUF file"));
  EXPECT_THAT(says({"--file", "config.json"}), HasSubstr("is not the name of a GGUF file"));
}

// A folder's GGUF files are other copies of the same weights.
TEST_F(PullTest, LeavesGgufFilesBesideAFolder) {
  server_.Put("/api/models/o/m/revision/main?blobs=true",
              absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": [{"rfilename": "config.json"},
                             {"rfilename": "model.safetensors"}, {"rfilename": "m-Q8_0.gguf"}]})"));
  ASSERT_EQ(Pull().code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "m" / "m-Q8_0.gguf"));
  server_.Put("/api/models/o/m/revision/main?blobs=true",
              absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": [{"rfilename": "config.json"}]})"));
  EXPECT_THAT(Pull().err, HasSubstr("has neither *.safetensors nor a model in one *.gguf"));
}

TEST_F(PullTest, AFileThatIsNotWhatTheServerStatesIsNotKept) {
  List(HexDigest("other weights"));
  const Outcome outcome = Pull();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("model.safetensors came with SHA-256 " + HexDigest(weights_)));
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(fs::exists(folder_ / "m" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "m" / "model.safetensors.part"));
}

TEST_F(PullTest, ShowsATokenToTheServerAlone) {
  std::ofstream(folder_ / "token") << "hf_\"quoted\\secret\n";
  const Outcome outcome = Pull({"--token-file", folder_ / "token"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(server_.Asked(), ::testing::Each(HasSubstr("Bearer hf_\"quoted\\secret")));
  EXPECT_EQ((outcome.out + outcome.err).find("secret"), std::string::npos);
}

TEST_F(PullTest, SaysWhatIsWrong) {
  EXPECT_EQ(RunBaton({"model", "pull", "nonsense"}).code, 2);
  EXPECT_EQ(RunBaton({"model", "pull", "../.."}).code, 2);
  EXPECT_EQ(RunBaton({"model", "pull", "o/m", "--endpoint", "ftp://x"}).code, 2);
  const Outcome outcome = Pull({"--revision", "nowhere"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is there such a repository and revision"));
}

}  // namespace
}  // namespace baton::cli
