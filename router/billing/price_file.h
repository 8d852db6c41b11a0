// PriceFile: the prices that are in force now, from a file that is read again when it changes. A bad file
// leaves the old prices in force. A request is charged by the prices of the moment at which it was prepared.
// Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/billing/price.h"
#include "router/files/watched_file.h"

namespace baton::router::billing {

class PriceFile {
 public:
  // The router's check of a table before it is in force; an error refuses it.
  using Check = std::function<absl::Status(const PriceTable&)>;

  static absl::StatusOr<std::unique_ptr<PriceFile>> Open(const std::string& path, Check check);

  // Null: the model has no price. The price stays as it is.
  std::shared_ptr<const Price> Find(std::string_view model) const;

  // Reads the file now. An error says what is wrong with it, and nothing has changed.
  absl::Status Reload();
  // Looks at the file every `interval` from now on.
  void Watch(absl::Duration interval = absl::Seconds(1));

 private:
  PriceFile(const std::string& path, Check check) : check_(std::move(check)), file_(path) {}

  const Check check_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const PriceTable> table_ ABSL_GUARDED_BY(mutex_);
  WatchedFile file_;  // the last member: its thread reads the others
};

}  // namespace baton::router::billing
