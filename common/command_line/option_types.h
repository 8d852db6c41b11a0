// Types of options that CLI11 lacks or reads too loosely. For the files that declare options.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::command_line {

// A whole number that 64 bits hold, in decimal; for transform(). CLI11 itself reads -1 and too large numbers
// as the largest number, and a leading zero as octal.
CLI::Validator WholeNumber();

// host:port, or unix:PATH. Whether the host exists is not checked.
CLI::Validator Address();

// Refuses a value for which `why` has words, and says them.
CLI::Validator Unless(std::string (*why)(const std::string& value));

// "0,2-4": small whole numbers and ranges of them, in their order: {0, 2, 3, 4}. Nothing: no such list, or
// more than 1024 numbers.
std::optional<std::vector<int>> ParseNumbers(std::string_view text);
// The same as text, without ranges.
std::string NumbersText(const std::vector<int>& numbers);

// --name LIST, as ParseNumbers reads it.
CLI::Option* AddNumbers(CLI::App& app, const std::string& name, std::vector<int>& into,
                        const std::string& description);

// One of `alone`, or some of `together` with commas between them, none twice.
CLI::Validator OneOrSeveral(std::vector<std::string> alone, std::vector<std::string> together);

// "1GiB": a number of bytes in the largest unit that it is whole in, as sizes may be given.
std::string SizeText(int64_t bytes);

// --name WORD, where each word stands for a value of an enum. Help shows the words.
template <typename Value>
CLI::Option* AddChoice(CLI::App& app, const std::string& name, Value& into,
                       const std::vector<std::pair<std::string, Value>>& choices,
                       const std::string& description) {
  std::vector<std::string> words;
  std::string current;
  for (const auto& [word, value] : choices) {
    words.push_back(word);
    if (value == into) current = word;
  }
  return app
      .add_option_function<std::string>(
          name,
          [&into, choices](const std::string& given) {
            for (const auto& [word, value] : choices) {
              if (word == given) into = value;
            }
          },
          description)
      ->check(CLI::IsMember(words))
      ->default_str(current);
}

// The same; sets nothing if the option is not given.
template <typename Value>
CLI::Option* AddChoice(CLI::App& app, const std::string& name, std::optional<Value>& into,
                       const std::vector<std::pair<std::string, Value>>& choices,
                       const std::string& description) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  return app
      .add_option_function<std::string>(
          name,
          [&into, choices](const std::string& given) {
            for (const auto& [word, value] : choices) {
              if (word == given) into = value;
            }
          },
          description)
      ->check(CLI::IsMember(words));
}

}  // namespace baton::command_line
