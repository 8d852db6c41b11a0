// Turn: the exchange that handlers hold, for HTTP/1.1 and HTTP/2 alike. It outlives what its answer goes out
// through (Outlet), and brings what handlers say, from any thread, onto the server's thread. What a request's
// body takes is held until its end, and what its handler holds for the answer.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "gateway/http/budget.h"
#include "gateway/http/exchange.h"
#include "gateway/http/loop.h"

namespace baton::gateway::http {

class Turn;

// Where one turn's answer goes: all on the server's thread, and nothing behind an end. It tells the turn when
// the answer has left (Turn::Over), or when nobody can take it any more (Turn::Gone).
class Outlet {
 public:
  virtual void SendAnswer(Turn& turn, Response response) = 0;
  virtual void SendHead(Turn& turn, Response response) = 0;
  virtual void SendPiece(Turn& turn, std::string piece, std::function<void()> taken) = 0;
  virtual void SendEnd(Turn& turn) = 0;
  virtual void Cut(Turn& turn) = 0;

 protected:
  ~Outlet() = default;
};

class Turn final : public Exchange, public std::enable_shared_from_this<Turn> {
 public:
  Turn(std::shared_ptr<Loop> loop, std::weak_ptr<Outlet> outlet, Request request, Held held, Held answer_held)
      : loop_(std::move(loop)),
        outlet_(std::move(outlet)),
        request_(std::move(request)),
        held_(std::move(held)),
        answer_held_(std::move(answer_held)) {}

  // Returns the handler's handle: to let go of it without an answer cuts. `kept` lives as long as the handle.
  static std::shared_ptr<Exchange> Handle(const std::shared_ptr<Turn>& turn,
                                          std::shared_ptr<void> kept = nullptr) {
    return {turn.get(), [turn, kept = std::move(kept)](Exchange*) { turn->Abandoned(); }};
  }

  const Request& request() const override { return request_; }
  void Answer(Response response) override;
  void Begin(Response response) override;
  void Write(std::string piece, std::function<void()> taken) override;
  void End() override;
  void Abort() override;
  bool Hold(size_t bytes) override { return answer_held_.Become(bytes); }
  void OnGone(std::function<void()> gone) override;
  void Post(std::function<void()> what) override { loop_->Post(std::move(what)); }
  void After(int milliseconds, std::function<void()> what) override;

  // From the outlet, on the server's thread: the answer has left; nobody is there to take it.
  void Over();
  void Gone();

 private:
  template <typename Do>
  void Run(Do what);
  void Abandoned();

  const std::shared_ptr<Loop> loop_;
  const std::weak_ptr<Outlet> outlet_;
  const Request request_;
  const Held held_;
  Held answer_held_;
  std::function<void()> gone_;
  boost::asio::steady_timer timer_{loop_->context()};
  bool begun_ = false, ended_ = false, over_ = false, is_gone_ = false;
};

}  // namespace baton::gateway::http
