#include "router/store/shared_limits.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/status.h"

namespace baton::router::store {
namespace {

using admission::Limit;
using admission::Meters;
using admission::TenantId;

// Between two exchanges, if nothing is urgent; and the least time between two.
constexpr absl::Duration kInterval = absl::Milliseconds(100);
constexpr absl::Duration kPause = absl::Milliseconds(2);
// Before a store that is away is asked again.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(500);
// A router that was not heard of for so long shares no limits any more.
constexpr char kForgetRouterSeconds[] = "10";
// Names of the limits; a bucket's key is a tenant and a limit.
constexpr std::string_view kLimitNames[admission::kLimits] = {"requests", "prompt_tokens", "output_tokens",
                                                              "quota"};

// Takes what was used from the buckets and returns the number of routers, then name, time and level of each
// bucket that has changed since a time. A bucket is kept as its level at a time, with the limit and the
// period by which it refills; when the limit is changed, what was used stays used. All keys have one hash
// tag, so that they are on one node of a cluster. KEYS: routers by the time when they were last heard of,
// buckets by the time of their last change, buckets. ARGV: router, time since which changes are asked for,
// seconds after which a router is forgotten; then by bucket its name, limit, seconds of the period, and what
// was used.
constexpr Script kExchange = {.code = R"(
local time = redis.call('TIME')
local stamp = time[1] .. string.format('.%06d', tonumber(time[2]))
local now = tonumber(stamp)
redis.call('ZADD', KEYS[1], stamp, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[3]))
local function missing(name)
  local kept = redis.call('HGET', KEYS[3], name)
  if not kept then return 0, nil end
  local level, at, limit, period = string.match(kept, '(%S+) (%S+) (%S+) (%S+)')
  limit = tonumber(limit)
  local refilled = math.max(0, now - tonumber(at)) * limit / tonumber(period)
  return limit - math.min(limit, tonumber(level) + refilled), limit
end
for i = 4, #ARGV, 4 do
  local level = tonumber(ARGV[i + 1]) - missing(ARGV[i]) - tonumber(ARGV[i + 3])
  redis.call('HSET', KEYS[3], ARGV[i], string.format('%.6f %s %s %s', level, stamp, ARGV[i + 1], ARGV[i + 2]))
  redis.call('ZADD', KEYS[2], stamp, ARGV[i])
end
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - 172800, 'LIMIT', 0, 1000)
for _, name in ipairs(old) do
  redis.call('ZREM', KEYS[2], name)
  redis.call('HDEL', KEYS[3], name)
end
local reply = {redis.call('ZCARD', KEYS[1])}
local changed = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf', 'WITHSCORES')
for i = 1, #changed, 2 do
  local gone, limit = missing(changed[i])
  if limit then
    reply[#reply + 1] = changed[i]
    reply[#reply + 1] = changed[i + 1]
    reply[#reply + 1] = string.format('%.6f', limit - gone)
  end
end
return reply
)",
                              .keys = 3};
constexpr const char* kKeys[] = {"{baton}:routers", "{baton}:changes", "{baton}:limits"};

std::optional<Limit> LimitNamed(std::string_view name) {
  const auto* const found = std::find(std::begin(kLimitNames), std::end(kLimitNames), name);
  if (found == std::end(kLimitNames)) return std::nullopt;
  return static_cast<Limit>(found - std::begin(kLimitNames));
}

}  // namespace

SharedLimits::SharedLimits(const Options& options, std::shared_ptr<Meters> meters, const Clock& clock,
                           StoreProbe& probe)
    : router_id_(options.router_id),
      meters_(std::move(meters)),
      clock_(clock),
      probe_(probe),
      redis_(options.store) {}

void SharedLimits::Start() {
  Exchange();
  thread_ = std::thread([this] {
    while (!stopping()) {
      if (away_) {
        absl::MutexLock lock(&mutex_);
        mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kRetryAfter);
      } else {
        meters_->AwaitUse(kInterval);
      }
      Exchange();
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kPause);
    }
  });
}

SharedLimits::~SharedLimits() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  meters_->Wake();
  if (thread_.joinable()) thread_.join();
}

bool SharedLimits::stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void SharedLimits::SetTenant(TenantId tenant, const std::string& name) {
  absl::MutexLock lock(&mutex_);
  rescan_ = tenants_.emplace(name, tenant).second || rescan_;
  names_[tenant] = name;
}

void SharedLimits::Exchange() {
  const std::vector<Meters::Report> reports = meters_->TakeReports(clock_.Now());
  std::vector<std::string> arguments(std::begin(kKeys), std::end(kKeys));
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(rescan_, false)) seen_ = "0";
    arguments.insert(arguments.end(), {router_id_, seen_, kForgetRouterSeconds});
    for (const Meters::Report& report : reports) {
      const auto name = names_.find(report.tenant);
      if (name == names_.end()) continue;
      arguments.push_back(fmt::format("{}:{}", name->second, kLimitNames[static_cast<size_t>(report.limit)]));
      arguments.push_back(std::to_string(report.amount));
      arguments.push_back(std::to_string(absl::ToInt64Seconds(report.period)));
      arguments.push_back(std::to_string(report.used));
    }
  }
  const absl::Time asked = clock_.Now();
  const absl::StatusOr<Reply> reply = redis_.Run(kExchange, arguments);
  const absl::Status status = reply.ok() ? Adopt(*reply) : reply.status();
  if (status.ok()) {
    probe_.Answered(clock_.Now() - asked);
    probe_.Routers(routers_);
    if (away_ || !told_) spdlog::info("limits are shared by the store; routers in all: {}", routers_);
    away_ = false;
    told_ = true;
    return;
  }
  // It may have counted them nevertheless: then they count twice, which is less harm than not at all.
  meters_->PutBack(reports);
  meters_->GoAlone(1.0 / static_cast<double>(routers_), clock_.Now());
  probe_.Failed();
  if (!away_) {
    spdlog::warn("limits are not shared: this router goes on with 1/{} of each; {}", routers_,
                 std::string(status.message()));
  }
  away_ = true;
}

absl::Status SharedLimits::Adopt(const Reply& reply) {
  if (reply.list.size() % 3 != 1) return absl::UnavailableError("the store's answer is of another form");
  const absl::Time now = clock_.Now();
  if (away_) meters_->EndAlone(now);
  routers_ = std::max<int64_t>(1, reply.list.front().number);
  double newest = 0;
  absl::MutexLock lock(&mutex_);
  for (size_t i = 1; i < reply.list.size(); i += 3) {
    const std::string& name = reply.list[i].text;
    double level = 0, at = 0;
    const size_t colon = name.rfind(':');
    if (colon == std::string::npos || !absl::SimpleAtod(reply.list[i + 1].text, &at) ||
        !absl::SimpleAtod(reply.list[i + 2].text, &level)) {
      continue;
    }
    if (at > newest) {
      newest = at;
      seen_ = reply.list[i + 1].text;
    }
    const auto tenant = tenants_.find(name.substr(0, colon));
    const std::optional<Limit> limit = LimitNamed(std::string_view(name).substr(colon + 1));
    if (tenant != tenants_.end() && limit.has_value()) meters_->Adopt(tenant->second, *limit, level, now);
  }
  return absl::OkStatus();
}

}  // namespace baton::router::store
