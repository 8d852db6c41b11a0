// Roster: where workers should be, from all sources together: lists given at the start, the fleet file, and
// what DNS said of the names in both. It decides which names are due to be asked, and what a good answer, an
// empty one and a failure mean. Plain state: no thread, no clock, no socket. One thread at a time.
//
// An answer is authoritative: addresses that are missing from it are removed. A failure to ask says nothing
// about the workers, so what was known stays. A name is asked again `every` after its answer, or sooner when
// a worker was lost, but not sooner than kMinGap after the last time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/resolver.h"
#include "router/discovery/entry.h"

namespace baton::router::discovery {

// Where workers should be, host:port, each once per role, in the order of the lists.
struct Found {
  std::vector<std::string> decode;
  std::vector<std::string> prefill;
  // Every name has been answered, or failed, at least once.
  bool complete = true;
  // Decode names that give no address, and why, for people.
  std::string trouble = {};

  bool operator==(const Found&) const = default;
};

class Roster {
 public:
  static constexpr absl::Duration kMinGap = absl::Seconds(1);

  Roster(Lists given, absl::Duration every);

  // Sets the fleet file's present content.
  void SetFile(Lists file);
  // A worker was lost: DNS may know of it already.
  void Hurry();
  // Hosts to ask now, each of which will have its OnAnswer.
  std::vector<std::string> TakeDue(absl::Time now);
  // When the next one is due; InfiniteFuture if none is before an answer.
  absl::Time next_due() const;

  // Something new, to be logged: a trouble, another one, or its end.
  struct News {
    bool trouble = false;
    std::string text;
  };
  std::optional<News> OnAnswer(const std::string& host, const Resolver::Answer& answer, absl::Time now);

  Found found() const;

 private:
  struct Name {
    std::vector<std::string> addresses;  // sorted, each once
    bool answered = false;
    bool asked = false;    // no answer yet
    bool hurried = false;  // lost a worker since it was asked
    absl::Time asked_at = absl::InfinitePast();
    absl::Time due = absl::InfinitePast();
    std::string trouble;
  };

  // One name for each host in the lists, and no other.
  void KeepNames();

  const Lists given_;
  const absl::Duration every_;
  Lists file_;
  std::map<std::string, Name> names_;  // by host
};

}  // namespace baton::router::discovery
