// The work that spec_bench replays: prompts, and answers as a model that does the work would write them. Our
// own words.
#pragma once

#include <string>
#include <vector>

namespace baton::bench {

// The model's input, behind all earlier turns, and what it then writes. Empty: its own words.
struct Turn {
  std::string told;
  std::string answer;
};

struct Work {
  std::string name;
  std::vector<Turn> turns;
};

// To edit a file, to be an agent that calls tools and gets their results, turn by turn, to summarise a
// document, to chat.
const std::vector<Work>& AllWork();

}  // namespace baton::bench
