// Unused options: what a config.json asks for and the family of its model does not know. Any thread.
#pragma once

#include <string>
#include <vector>

#include "text/config/json_fields.h"

namespace baton::model {

// Returns options that change what some model computes, and that `fields` has switched on and nobody has
// read. transformers does not read them for such a family, either, so the model's numbers are its; but
// another program, or whoever made the file, may compute others.
std::vector<std::string> UnusedOptions(const JsonFields& fields);

}  // namespace baton::model
