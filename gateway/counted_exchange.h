// CountedExchange: an exchange that has a name, and tells the probe how it ended. Any thread may answer it,
// as any exchange, and only one does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gateway/http/exchange.h"
#include "gateway/probe.h"

namespace baton::gateway {

class CountedExchange final : public http::Exchange {
 public:
  // `alive`: what the gateway waits for before it goes. `headers`: of the answer, whatever it is.
  CountedExchange(std::shared_ptr<http::Exchange> exchange, std::string endpoint, Probe& probe,
                  std::shared_ptr<void> alive, http::Headers headers);
  ~CountedExchange() override;

  // The gateway's name for the request; the router has a name of its own.
  const std::string& id() const { return id_; }

  const http::Request& request() const override { return exchange_->request(); }
  void Answer(http::Response response) override {
    Named(&response);
    exchange_->Answer(std::move(response));
  }
  void Begin(http::Response response) override {
    Named(&response);
    exchange_->Begin(std::move(response));
  }
  void Write(std::string piece, std::function<void()> taken) override {
    exchange_->Write(std::move(piece), std::move(taken));
  }
  void End() override { exchange_->End(); }
  void Abort() override { exchange_->Abort(); }
  bool Hold(size_t bytes) override { return exchange_->Hold(bytes); }
  void OnGone(std::function<void()> gone) override;
  void Post(std::function<void()> what) override { exchange_->Post(std::move(what)); }
  void After(int milliseconds, std::function<void()> what) override {
    exchange_->After(milliseconds, std::move(what));
  }

 private:
  void Named(http::Response* response);

  const std::shared_ptr<void> alive_;  // before, so destroyed after, all others
  const std::shared_ptr<http::Exchange> exchange_;
  const std::string endpoint_;
  Probe& probe_;
  const http::Headers headers_;
  const std::string id_;
  const absl::Time begun_ = absl::Now();
  const std::shared_ptr<std::atomic<int>> status_;  // OnGone's too
};

}  // namespace baton::gateway
