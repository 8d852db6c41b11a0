#include "gateway/http/turn.h"

#include <chrono>
#include <utility>

namespace baton::gateway::http {

std::string_view Request::Header(std::string_view name) const {
  for (const auto& [other, value] : headers) {
    if (other == name) return value;
  }
  return {};
}

template <typename Do>
void Turn::Run(Do what) {
  loop_->Post([self = shared_from_this(), what = std::move(what)]() mutable {
    const auto outlet = self->outlet_.lock();
    if (outlet != nullptr && !self->over_) what(*outlet);
  });
}

void Turn::Answer(Response response) {
  Run([this, response = std::move(response)](Outlet& outlet) mutable {
    if (std::exchange(begun_, true)) return;
    ended_ = true;
    outlet.SendAnswer(*this, std::move(response));
  });
}

void Turn::Begin(Response response) {
  Run([this, response = std::move(response)](Outlet& outlet) mutable {
    if (!std::exchange(begun_, true)) outlet.SendHead(*this, std::move(response));
  });
}

void Turn::Write(std::string piece, std::function<void()> taken) {
  Run([this, piece = std::move(piece), taken = std::move(taken)](Outlet& outlet) mutable {
    if (!ended_) outlet.SendPiece(*this, std::move(piece), std::move(taken));
  });
}

void Turn::End() {
  Run([this](Outlet& outlet) {
    if (!std::exchange(ended_, true)) outlet.SendEnd(*this);
  });
}

void Turn::Abort() {
  Run([this](Outlet& outlet) {
    Over();
    outlet.Cut(*this);
  });
}

void Turn::OnGone(std::function<void()> gone) {
  loop_->Post([self = shared_from_this(), gone = std::move(gone)] {
    if (self->is_gone_) {
      gone();
    } else if (!self->over_) {
      self->gone_ = gone;
    }
  });
}

void Turn::After(int milliseconds, std::function<void()> what) {
  loop_->Post([self = shared_from_this(), milliseconds, what = std::move(what)] {
    if (self->over_) return;
    self->timer_.expires_after(std::chrono::milliseconds(milliseconds));
    self->timer_.async_wait([self, what](boost::system::error_code error) {
      if (!error && !self->over_) what();
    });
  });
}

void Turn::Gone() {
  if (over_) return;
  over_ = is_gone_ = true;
  timer_.cancel();
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

void Turn::Over() {
  over_ = true;
  gone_ = nullptr;
  timer_.cancel();
}

void Turn::Abandoned() {
  loop_->Post([self = shared_from_this()] {
    if (self->over_ || self->ended_) return;
    self->Over();
    if (const auto outlet = self->outlet_.lock()) outlet->Cut(*self);
  });
}

}  // namespace baton::gateway::http
