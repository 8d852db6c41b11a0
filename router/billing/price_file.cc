#include "router/billing/price_file.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/base/status.h"
#include "text/config/json_fields.h"

namespace baton::router::billing {
namespace {

constexpr int64_t kMaxPriceFileBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<PriceFile>> PriceFile::Open(const std::string& path, Check check) {
  std::unique_ptr<PriceFile> prices(new PriceFile(path, std::move(check)));
  BATON_RETURN_IF_ERROR(prices->Reload());
  return prices;
}

std::shared_ptr<const Price> PriceFile::Find(std::string_view model) const {
  std::shared_ptr<const PriceTable> table;
  {
    absl::MutexLock lock(&mutex_);
    table = table_;
  }
  const Price* const price = table->Find(model);
  return price == nullptr ? nullptr : std::shared_ptr<const Price>(std::move(table), price);
}

absl::Status PriceFile::Reload() {
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(file_.path(), kMaxPriceFileBytes));
  BATON_ASSIGN_OR_RETURN(PriceTable table, PriceTable::Parse(text, file_.path()));
  BATON_RETURN_IF_ERROR(check_(table));
  auto shared = std::make_shared<const PriceTable>(std::move(table));
  spdlog::info("{}: prices of {} models", file_.path(), shared->models().size());
  absl::MutexLock lock(&mutex_);
  table_ = std::move(shared);
  return absl::OkStatus();
}

void PriceFile::Watch(absl::Duration interval) {
  file_.Watch(interval, [this] {
    if (absl::Status status = Reload(); !status.ok()) {
      spdlog::error("the prices stay as they were: {}", std::string(status.message()));
    }
  });
}

}  // namespace baton::router::billing
