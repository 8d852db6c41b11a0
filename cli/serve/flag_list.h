// FlagList: arguments of a process, of which the last one of a name counts. Plain data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::cli {

// "--name" of "--name=value".
std::string FlagName(std::string_view flag);

class FlagList {
 public:
  void Set(const std::string& name, std::optional<std::string> value = std::nullopt);
  // Each "--name=value" or "--name"; an argument that begins otherwise is the value of the one before it.
  void Add(const std::vector<std::string>& arguments);
  // The value of the flag, "" for one without; nothing: it is not there.
  std::optional<std::string> Value(std::string_view name) const;
  // In the order in which the names came.
  std::vector<std::string> Arguments() const;

 private:
  struct Flag {
    std::string name;
    std::optional<std::string> value;
    bool joined = false;  // written with the name, as "--name=value"
  };
  void Put(Flag flag);

  std::vector<Flag> flags_;
};

}  // namespace baton::cli
