#include "router/store/redis_ledger.h"

#include <spdlog/spdlog.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace baton::router::store {
namespace {

using billing::AddedUse;
using billing::AnswerUse;
using billing::LedgerKey;
using billing::LedgerSheet;
using billing::LedgerSums;
using nlohmann::json;

// A writer of a batch is remembered for so long: nobody tries one again after that.
constexpr char kRememberSeconds[] = "5356800";  // 62 days

// Numbers stay text from here to HINCRBY: Lua's have 53 bits.
// KEYS: the writer's newest batch, the set of days; then the answers of which is kept what was added; then by
// row its day's hash.
// ARGV: batch, seconds for which it is remembered, columns, number of answers, seconds for which they are
// kept; then by answer what is kept of it, which has to be so, and what is to be; then by row its day, its
// name and its columns, of which the last two are units and picounits of the cost. Returns 2, and adds
// nothing, if something else is kept of an answer.
constexpr Script kAdd = {.code = R"(
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) >= tonumber(ARGV[1]) then return 0 end
local columns = tonumber(ARGV[3])
local answers = tonumber(ARGV[4])
for answer = 1, answers do
  if (redis.call('GET', KEYS[2 + answer]) or '') ~= ARGV[4 + 2 * answer] then return 2 end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
for answer = 1, answers do
  redis.call('SET', KEYS[2 + answer], ARGV[5 + 2 * answer], 'EX', ARGV[5])
end
local at = 6 + 2 * answers
for row = 3 + answers, #KEYS do
  local name = ARGV[at + 1]
  redis.call('SADD', KEYS[2], ARGV[at])
  for column = 1, columns do
    local sum = redis.call('HINCRBY', KEYS[row], column .. ':' .. name, ARGV[at + 1 + column])
    if column == columns and sum >= 1000000000000 then
      redis.call('HINCRBY', KEYS[row], column .. ':' .. name, '-1000000000000')
      redis.call('HINCRBY', KEYS[row], (column - 1) .. ':' .. name, '1')
    end
  end
  at = at + 2 + columns
end
return 1
)"};

// The result of kAdd if what is kept of an answer has changed.
constexpr int kChanged = 2;
constexpr int kMaxAttempts = 16;

std::string AnswerName(const std::string& answer) { return "{baton}:usage_answer:" + answer; }
constexpr char kDays[] = "{baton}:usage_days";
std::string DayKey(const std::string& day) { return "{baton}:usage:" + day; }

std::string NameOf(const LedgerKey& key) {
  return json::array({key.tenant, key.key, key.model, key.currency})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<LedgerKey> KeyNamed(const std::string& day, std::string_view name) {
  const json read = json::parse(name, nullptr, /*allow_exceptions=*/false);
  if (!read.is_array() || read.size() != 4) return std::nullopt;
  for (const json& part : read) {
    if (!part.is_string()) return std::nullopt;
  }
  return LedgerKey{.day = day,
                   .tenant = read[0].get<std::string>(),
                   .key = read[1].get<std::string>(),
                   .model = read[2].get<std::string>(),
                   .currency = read[3].get<std::string>()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisLedger>> RedisLedger::Open(const StoreOptions& options) {
  std::unique_ptr<RedisLedger> ledger(new RedisLedger(options));
  const absl::Status there = ledger->redis_.Run(std::vector<std::string>{"PING"}).status();
  if (absl::IsUnavailable(there)) {
    spdlog::warn("what requests use waits in memory until the store is there: {}",
                 std::string(there.message()));
  } else if (!there.ok()) {
    return there;
  }
  return ledger;
}

absl::Status RedisLedger::Add(const std::string& writer, int64_t batch, const std::string& /*day*/,
                              const LedgerSheet& sheet, const std::vector<AnswerUse>& uses) {
  // Another router may add to one of the answers meanwhile.
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    LedgerSheet all = sheet;
    std::vector<std::string> keys = {"{baton}:usage_writer:" + writer, kDays};
    const LedgerSums zero;
    // An answer may be there twice: a later use builds on an earlier one.
    std::map<std::string, std::pair<std::string, std::string>> kept;  // before, and then
    for (const AnswerUse& use : uses) kept.try_emplace(use.answer);
    BATON_RETURN_IF_ERROR(Find(&kept));
    for (const AnswerUse& use : uses) all[use.key].Add(AddedUse(use, &kept.at(use.answer).second));
    std::vector<std::string> values = {std::to_string(batch), kRememberSeconds,
                                       std::to_string(LedgerColumns(zero).size()),
                                       std::to_string(kept.size()), std::to_string(billing::kAnswerSeconds)};
    for (const auto& [answer, charged] : kept) {
      keys.push_back(AnswerName(answer));
      values.push_back(charged.first);
      values.push_back(charged.second);
    }
    for (const auto& [key, sums] : all) {
      keys.push_back(DayKey(key.day));
      values.push_back(key.day);
      values.push_back(NameOf(key));
      for (const int64_t* const sum : LedgerColumns(sums)) values.push_back(std::to_string(*sum));
    }
    const Script script = {.code = kAdd.code, .keys = static_cast<int>(keys.size())};
    keys.insert(keys.end(), values.begin(), values.end());
    BATON_ASSIGN_OR_RETURN(const Reply done, redis_.Run(script, keys));
    if (done.number != kChanged) return absl::OkStatus();
  }
  return absl::UnavailableError("other routers add to the same answers");
}

absl::Status RedisLedger::Find(std::map<std::string, std::pair<std::string, std::string>>* kept) {
  constexpr size_t kAtOnce = 500;
  for (auto next = kept->begin(); next != kept->end();) {
    std::vector<std::string> command = {"MGET"};
    auto asked = next;
    for (; asked != kept->end() && command.size() <= kAtOnce; ++asked)
      command.push_back(AnswerName(asked->first));
    BATON_ASSIGN_OR_RETURN(const Reply found, redis_.Run(command));
    if (found.list.size() + 1 != command.size()) {
      return absl::UnavailableError("the store answers with another number of values than it was asked for");
    }
    for (const Reply& one : found.list) {
      next->second = {one.text, one.text};
      ++next;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LedgerSheet> RedisLedger::Read(const std::string& first, const std::string& last) {
  BATON_ASSIGN_OR_RETURN(const Reply days, redis_.Run(std::vector<std::string>{"SMEMBERS", kDays}));
  LedgerSheet sheet;
  for (const Reply& day : days.list) {
    if ((!first.empty() && day.text < first) || (!last.empty() && day.text > last)) continue;
    BATON_ASSIGN_OR_RETURN(const Reply fields,
                           redis_.Run(std::vector<std::string>{"HGETALL", DayKey(day.text)}));
    for (size_t i = 0; i + 1 < fields.list.size(); i += 2) {
      const std::string& field = fields.list[i].text;
      const size_t colon = field.find(':');
      if (colon == std::string::npos) continue;
      const std::optional<LedgerKey> key = KeyNamed(day.text, std::string_view(field).substr(colon + 1));
      size_t column = 0;
      int64_t value = 0;
      if (!key.has_value() || !absl::SimpleAtoi(field.substr(0, colon), &column) ||
          !absl::SimpleAtoi(fields.list[i + 1].text, &value)) {
        continue;
      }
      const auto columns = LedgerColumns(sheet[*key]);
      if (column >= 1 && column <= columns.size()) *columns[column - 1] = value;
    }
  }
  return sheet;
}

}  // namespace baton::router::store
