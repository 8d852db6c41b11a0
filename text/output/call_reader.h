// The text of one call, or of a list of calls, as the format writes it: name and arguments. Arguments come
// out as a JSON object: byte for byte where the model wrote JSON (but for AppendJson's escapes), else made of
// values that the tool's schema gives a type. Linear in the text, nesting is bounded. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/output_format.h"
#include "text/output/value_end.h"

namespace baton::output {

struct Call {
  std::string name;
  std::string id;         // empty: the format has none
  std::string arguments;  // a JSON object

  bool operator==(const Call&) const = default;
};

// The type in a tool's schema of one of its parameters ("string", "integer", ...); empty: not known.
using ParameterType = std::function<std::string(std::string_view tool, std::string_view parameter)>;

// Appends `c` to a JSON text of which `before` has seen what is there. A control character that stands in a
// string as it is, as models write the line breaks of code, becomes the escape that JSON has for it.
void AppendJson(const ValueEnd& before, char c, std::string* json);

// A call in a list of objects; without its markers.
std::optional<Call> ReadObject(std::string_view text);
// Reads the text before a named call's arguments: its name, and its id if the format has one there. Nothing:
// it names no call.
std::optional<Call> ReadHeader(const OutputFormat& format, std::string_view header);
// The name of a tagged call, from what stands before its first key.
std::optional<std::string> ReadTaggedName(const OutputFormat& format, std::string_view header);
// A value of a tagged call, from what stands between its tags, as JSON: a string if `type` says so, else the
// JSON (or Python's True, False, None) that it is, else a string.
std::string ReadTaggedValue(std::string_view raw, const std::string& type);

// `text` stands between the format's markers around a call; white space around it is ignored. Nothing: it is
// no call.
std::optional<std::vector<Call>> ReadCalls(const OutputFormat& format, std::string_view text,
                                           const ParameterType& type);

}  // namespace baton::output
