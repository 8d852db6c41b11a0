#include "router/store/redis.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <sys/time.h>

#include <csignal>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/quote.h"
#include "common/base/secret.h"
#include "common/base/status.h"

namespace baton::router::store {
namespace {

timeval Timeval(absl::Duration duration) { return absl::ToTimeval(duration); }

// hiredis writes to its socket without MSG_NOSIGNAL: a server that has gone must not end this process.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    constexpr timespec kNow = {};
    sigtimedwait(&pipe_, nullptr, &kNow);  // the signal that this thread may have caused
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

Reply Taken(const redisReply& from) {
  Reply reply;
  reply.number = from.integer;
  if (from.str != nullptr) reply.text.assign(from.str, from.len);
  reply.list.reserve(from.elements);
  for (size_t i = 0; i < from.elements; ++i) reply.list.push_back(Taken(*from.element[i]));
  return reply;
}

// The server's own words for what went wrong, the first of which names it.
absl::Status ServersError(const StoreAddress& address, std::string_view words) {
  const std::string text =
      fmt::format("the store at {} answers: {}", address.Text(), Shortened(words, kMaxQuotedBytes));
  const absl::string_view begin(words.data(), words.size());
  if (absl::StartsWith(begin, "OOM ")) return absl::ResourceExhaustedError(text);
  for (const char* const name : {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password"}) {
    if (!absl::StartsWith(begin, name)) continue;
    return absl::PermissionDeniedError(text + " (--store-password-file and the user in --store)");
  }
  return absl::UnavailableError(text);
}

}  // namespace

void Redis::Closer::operator()(redisContext* context) const { redisFree(context); }
void Redis::Closer::operator()(redisReply* reply) const { freeReplyObject(reply); }

Redis::Redis(StoreOptions options) : options_(std::move(options)) {}
Redis::~Redis() = default;

absl::Status Redis::Failure(std::string_view doing) const {
  return absl::UnavailableError(
      fmt::format("{} the store at {}: {}", doing, options_.address.Text(),
                  context_ == nullptr ? "no memory" : static_cast<const char*>(context_->errstr)));
}

absl::Status Redis::Connect() {
  if (context_ != nullptr) return absl::OkStatus();
  const StoreAddress& address = options_.address;
  const timeval patience = Timeval(options_.patience);
  context_.reset(address.socket.empty()
                     ? redisConnectWithTimeout(address.host.c_str(), address.port, patience)
                     : redisConnectUnixWithTimeout(address.socket.c_str(), patience));
  absl::Status ready = absl::OkStatus();
  if (context_ == nullptr || context_->err != 0 || redisSetTimeout(context_.get(), patience) != REDIS_OK) {
    ready = Failure("connecting to");
  }
  if (ready.ok() && (!options_.password_file.empty() || !address.user.empty())) {
    std::vector<std::string> login = {"AUTH"};
    if (!address.user.empty()) login.push_back(address.user);
    login.emplace_back();
    if (!options_.password_file.empty()) {
      auto password = ReadSecretFile(options_.password_file, "the store's password", 1);
      ready = password.status();
      if (password.ok()) login.back() = *std::move(password);
    }
    if (ready.ok()) ready = Send(login).status();
  }
  if (ready.ok() && address.database != 0) {
    ready = Send(std::vector<std::string>{"SELECT", std::to_string(address.database)}).status();
  }
  if (!ready.ok()) context_ = nullptr;
  return ready;
}

absl::StatusOr<Reply> Redis::Send(std::span<const std::string> command) {
  const WithoutPipeSignal no_signal;
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  for (const std::string& word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  const std::unique_ptr<redisReply, Closer> reply(static_cast<redisReply*>(
      redisCommandArgv(context_.get(), static_cast<int>(words.size()), words.data(), sizes.data())));
  if (reply == nullptr) {
    const absl::Status failure = Failure("asking");
    context_ = nullptr;  // an answer that comes late would be taken for the next command's
    return failure;
  }
  if (reply->type == REDIS_REPLY_ERROR) {
    return ServersError(options_.address, std::string_view(reply->str, reply->len));
  }
  return Taken(*reply);
}

absl::StatusOr<Reply> Redis::Run(std::span<const std::string> command) {
  BATON_RETURN_IF_ERROR(Connect());
  return Send(command);
}

absl::StatusOr<Reply> Redis::Run(const Script& script, std::span<const std::string> arguments) {
  std::vector<std::string> command = {"EVAL", std::string(script.code), std::to_string(script.keys)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Run(command);
}

}  // namespace baton::router::store
