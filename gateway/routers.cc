#include "gateway/routers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace baton::gateway {
Router::Router(std::string where, const std::string& name, const rpc::Security* security)
    : address(std::move(where)),
      channel(rpc::MakeChannel(address, rpc::kPublicKeepalive, security, name)),
      health(rpc::MakeHealthChannel(address, rpc::kPublicKeepalive, security, name,
                                    v1::Inference::service_full_name())),
      inference(channel),
      any(channel),
      checks(channel) {}

bool Router::Ready() const {
  return health->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY &&
         channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

struct Routers::State {
  struct Name {
    ServiceAddress name;
    bool asked = false;                  // no answer yet
    std::string trouble;                 // why it gives no address; empty: it does
    std::vector<std::string> addresses;  // host:port, as it gave them last
  };

  State(const rpc::Security* s, std::shared_ptr<Resolver> r, absl::Duration e, Probe& p)
      : security(s), resolver(std::move(r)), every(e), probe(p) {}

  // Takes what DNS said of a name. An answer holds: routers that are missing from it get no more calls. A
  // failure to ask says nothing about them.
  void Answer(size_t which, const Resolver::Answer& answer) {
    absl::MutexLock lock(&mutex);
    if (closed) return;
    Name& name = names[which];
    name.asked = false;
    const std::string before = std::exchange(name.trouble, "");
    if (answer.ok() || absl::IsNotFound(answer.status())) name.addresses.clear();
    if (answer.ok()) {
      for (const std::string& one : *answer) name.addresses.push_back(JoinHostPort(one, name.name.port));
      std::ranges::sort(name.addresses);
      const auto same = std::ranges::unique(name.addresses);
      name.addresses.erase(same.begin(), same.end());
    }
    if (!answer.ok())
      name.trouble = fmt::format("{}: {}", name.name.host, std::string(answer.status().message()));
    if (answer.ok() && answer->empty()) name.trouble = fmt::format("{}: no addresses", name.name.host);
    if (name.trouble != before) {
      if (name.trouble.empty()) {
        spdlog::info("routers: {} has {} addresses", name.name.host, name.addresses.size());
      } else {
        spdlog::warn("routers: {}", name.trouble);
      }
    }
    Follow();
  }

  // The set is what the names say and what was given.
  void Follow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<std::pair<std::string, std::string>> wanted;  // address and name, each address once
    const auto add = [&wanted](const std::string& address, const std::string& name) {
      const auto same = [&](const auto& one) { return one.first == address; };
      if (std::ranges::none_of(wanted, same)) wanted.emplace_back(address, name);
    };
    for (const std::string& address : fixed) add(address, "");
    for (const Name& name : names) {
      for (const std::string& address : name.addresses) add(address, name.name.host);
    }
    const auto stays = [&](const std::shared_ptr<Router>& router) {
      return std::erase_if(wanted, [&](const auto& one) { return one.first == router->address; }) > 0;
    };
    const auto gone = std::ranges::stable_partition(routers, stays);
    leaving.insert(leaving.end(), gone.begin(), gone.end());
    routers.erase(gone.begin(), gone.end());
    for (const auto& [address, name] : wanted) {
      routers.push_back(std::make_shared<Router>(address, name, security));
      (void)routers.back()->Ready();  // which connects
    }
  }

  // Takes out the routers that have left and have no call under way any more.
  std::vector<std::shared_ptr<Router>> TakeLeft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto busy = [](const auto& router) { return router.use_count() > 1; };
    const auto idle = std::ranges::stable_partition(leaving, busy);
    std::vector<std::shared_ptr<Router>> left(idle.begin(), idle.end());
    leaving.erase(idle.begin(), idle.end());
    return left;
  }

  const rpc::Security* const security;  // null: neither TLS nor keys
  const std::shared_ptr<Resolver> resolver;
  const absl::Duration every;
  Probe& probe;
  std::vector<std::string> fixed;
  mutable absl::Mutex mutex;
  std::vector<Name> names ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Router>> routers ABSL_GUARDED_BY(mutex);
  // That have left. They are held until their last call is over, because gRPC's threads, on which calls end,
  // must not destroy the last channel: they would wait for themselves.
  std::vector<std::shared_ptr<Router>> leaving ABSL_GUARDED_BY(mutex);
  size_t turn ABSL_GUARDED_BY(mutex) = 0;
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

Routers::Routers(const std::vector<ServiceAddress>& given, const rpc::Security* security,
                 std::shared_ptr<Resolver> resolver, absl::Duration resolve_every, Probe& probe)
    : state_(std::make_shared<State>(
          security, resolver != nullptr ? std::move(resolver) : std::make_shared<SystemResolver>(),
          resolve_every, probe)) {
  {
    absl::MutexLock lock(&state_->mutex);
    for (const ServiceAddress& one : given) {
      if (one.is_name) {
        state_->names.push_back({.name = one, .addresses = {}});
      } else {
        state_->fixed.push_back(one.text());
      }
    }
    state_->Follow();
  }
  thread_ = std::thread([this] { Look(); });
}

Routers::~Routers() {
  std::vector<std::shared_ptr<Router>> routers, leaving;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->closed = true;
    routers.swap(state_->routers);
    leaving.swap(state_->leaving);
  }
  thread_.join();
}

void Routers::Look() {
  constexpr absl::Duration kCount = absl::Seconds(1);
  constexpr std::chrono::milliseconds kConnect(50);
  absl::Time due = absl::InfinitePast();
  while (true) {
    std::vector<std::pair<size_t, std::string>> ask;
    std::vector<std::shared_ptr<Router>> known, left;
    {
      absl::MutexLock lock(&state_->mutex);
      if (state_->closed) return;
      known = state_->routers;
      left = state_->TakeLeft();
      const absl::Time now = absl::Now();
      if (now >= due) {
        due = now + state_->every;
        for (size_t i = 0; i < state_->names.size(); ++i) {
          if (!std::exchange(state_->names[i].asked, true)) ask.emplace_back(i, state_->names[i].name.host);
        }
      }
    }
    for (const auto& [which, host] : ask) {
      state_->resolver->Resolve(host, [weak = std::weak_ptr(state_), which](Resolver::Answer answer) {
        if (const auto state = weak.lock(); state != nullptr) state->Answer(which, answer);
      });
    }
    left.clear();
    // gRPC has threads of its own from the first call on. Until then it looks after connections while
    // somebody waits for them.
    for (const auto& one : known) {
      if (!one->Ready()) one->health->WaitForConnected(std::chrono::system_clock::now() + kConnect);
    }
    state_->probe.Routers(std::ranges::count_if(known, [](const auto& one) { return one->Ready(); }),
                          std::ssize(known));
    known.clear();
    absl::MutexLock lock(&state_->mutex);
    state_->mutex.AwaitWithTimeout(absl::Condition(&state_->closed), std::min(kCount, state_->every));
  }
}

std::shared_ptr<Router> Routers::Pick(std::string_view avoid) {
  std::vector<std::shared_ptr<Router>> known;
  size_t turn = 0;
  {
    absl::MutexLock lock(&state_->mutex);
    known = state_->routers;
    turn = state_->turn++;
  }
  if (known.empty()) return nullptr;
  // Equals have their turns.
  std::ranges::rotate(known, known.begin() + static_cast<ptrdiff_t>(turn % known.size()));
  const auto rank = [avoid, several = known.size() > 1](const std::shared_ptr<Router>& router) {
    return std::tuple(several && !router->Ready(), router->address == avoid,
                      router->calls.load(std::memory_order_relaxed));
  };
  std::shared_ptr<Router> best;
  auto least = rank(known.front());
  best = known.front();
  for (size_t i = 1; i < known.size(); ++i) {
    if (const auto ranked = rank(known[i]); ranked < least) {
      least = ranked;
      best = known[i];
    }
  }
  best->calls.fetch_add(1, std::memory_order_relaxed);
  Router* const router = best.get();
  return {router,
          [held = std::move(best)](Router* of) { of->calls.fetch_sub(1, std::memory_order_relaxed); }};
}

absl::Status Routers::NoneKnown() const {
  absl::MutexLock lock(&state_->mutex);
  std::vector<std::string> troubles;
  for (const State::Name& name : state_->names) {
    troubles.push_back(name.trouble.empty() ? name.name.host + ": not known yet" : name.trouble);
  }
  return absl::UnavailableError(fmt::format("no router is known ({}); retry", absl::StrJoin(troubles, "; ")));
}

}  // namespace baton::gateway
