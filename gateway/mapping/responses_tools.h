// Tools of OpenAI's Responses API: functions, alone or in namespaces. A model knows a function of a namespace
// as SPACE__NAME; its calls go back to the client under the names that the client gave. A tool that runs on
// the vendor's servers, or takes another input than JSON, is INVALID_ARGUMENT. Source: the API reference of
// OpenAI (responses). Each object is one request's; one thread.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "gateway/mapping/json_object.h"

namespace baton::gateway {

// The name by which the model knows a function. `space` empty: it is in none.
std::string NameInModel(const std::string& space, const std::string& name);

class ToolNames {
 public:
  struct Name {
    std::string space, name;
    bool operator==(const Name&) const = default;
  };

  // False: the model knows another function by that name.
  bool Add(const Name& name);
  // The client's name of what the model calls `in_model`, which may be none of its tools.
  Name Of(const std::string& in_model) const;

 private:
  std::map<std::string, Name> known_;  // by the name in the model
};

// The members `tools`, `tool_choice` and `parallel_tool_calls`.
absl::Status ReadResponsesTools(JsonObject& body, v1::ChatRequest* request, ToolNames* names);

}  // namespace baton::gateway
