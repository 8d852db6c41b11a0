// The fate of JSON schemas in Baton's grammars: the path of a request's constraint, from the schema's text
// over output::SchemaGrammar and text::GrammarVocabulary to masks, on one thread. compare.py drives it beside
// other engines, which get the same tokens.
//
//     schemas_bench --model MODEL <LINES
//
// The first line that it prints is {commit, vocabulary}: the bytes of each token in hexadecimal, null for
// control tokens. Then a line for each that it reads, {name, schema, walks, seed, instances: [{valid,
// text}]}, where schema is JSON as text: {name, compiled, message, compile_us, mask_us, instances: [{tokens,
// accepted, message}], walks: [text in hexadecimal, or null if it did not end]}. compile_us is until the
// first mask is there; mask_us has a mask and its token, along the valid instances.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/build_info.h"
#include "nlohmann/json.hpp"
#include "text/grammar.h"
#include "text/output/constraint.h"
#include "text/tokenizer.h"

namespace baton::bench {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kWalkTokens = 300;  // as in compare.py

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

class Bench {
 public:
  explicit Bench(const std::string& model)
      : tokenizer_(text::Tokenizer::Load(model).value()),
        vocabulary_(text::GrammarVocabulary::Make(*tokenizer_).value()),
        mask_(vocabulary_->mask_words()),
        closes_(static_cast<size_t>(tokenizer_->vocabulary())) {
    for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id) {
      const std::string_view bytes = tokenizer_->TokenBytes(TokenId(id));
      closes_[static_cast<size_t>(id)] =
          !bytes.empty() && std::string_view("\"}]").find(bytes[0]) != std::string_view::npos;
    }
  }

  Json Vocabulary() const {
    Json words = Json::array();
    for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id) {
      const TokenId token(id);
      words.push_back(tokenizer_->IsSpecial(token) ? Json() : Json(Hex(tokenizer_->TokenBytes(token))));
    }
    return words;
  }

  Json Run(const Json& asked) {
    Json said = {{"name", asked["name"]}, {"compiled", false}, {"mask_us", Json::array()}};
    const auto begin = Clock::now();
    absl::StatusOr<text::GrammarMatcher> start = Compile(asked["schema"].get<std::string>());
    said["compile_us"] = Microseconds(Clock::now() - begin);
    said["compiled"] = start.ok();
    said["message"] = std::string(start.status().message());
    said["instances"] = Json::array();
    for (const Json& instance : asked["instances"]) said["instances"].push_back(Tokens(instance));
    said["walks"] = Json::array();
    if (!start.ok()) return said;
    for (size_t i = 0; i < said["instances"].size(); ++i) {
      const bool measured = asked["instances"][i]["valid"].get<bool>();
      Take(start->Fork(), said["instances"][i], measured ? &said["mask_us"] : nullptr);
    }
    std::mt19937_64 random(asked["seed"].get<uint64_t>());
    for (int i = 0; i < asked["walks"].get<int>(); ++i) said["walks"].push_back(Walk(start->Fork(), random));
    return said;
  }

 private:
  absl::StatusOr<text::GrammarMatcher> Compile(const std::string& schema) {
    const auto grammar = output::SchemaGrammar(schema);
    if (!grammar.ok()) return grammar.status();
    return vocabulary_->Compile(*grammar);  // its first mask as well
  }

  Json Tokens(const Json& instance) const {
    Json tokens = Json::array();
    const auto encoded = tokenizer_->Encode(instance["text"].get<std::string>(), false).value();
    for (const TokenId token : encoded) {
      tokens.push_back(token.value());
    }
    return {{"tokens", tokens}, {"accepted", false}};
  }

  // mask_us: null if the instance is only to be taken or refused.
  void Take(text::GrammarMatcher matcher, Json& instance, Json* mask_us) {
    for (const Json& token : instance["tokens"]) {
      const auto begin = Clock::now();
      absl::Status status = mask_us == nullptr ? absl::OkStatus() : matcher.Mask(mask_).status();
      status.Update(matcher.Push(TokenId(token.get<int32_t>())));
      if (mask_us != nullptr) mask_us->push_back(Microseconds(Clock::now() - begin));
      if (!status.ok()) {
        instance["message"] = std::string(status.message());
        return;
      }
    }
    const auto ends = matcher.Mask(mask_);
    instance["accepted"] = ends.value_or(false);
    instance["message"] = ends.ok() ? "" : std::string(ends.status().message());
  }

  // A random answer. What closes strings, lists and objects is preferred, or few would end.
  Json Walk(text::GrammarMatcher matcher, std::mt19937_64& random) {
    std::string text;
    for (int step = 0; step < kWalkTokens; ++step) {
      const auto ends = matcher.Mask(mask_);
      if (!ends.ok()) return nullptr;
      std::vector<int32_t> allowed, closing;
      for (size_t word = 0; word < mask_.size(); ++word) {
        for (uint32_t bits = mask_[word]; bits != 0; bits &= bits - 1) {
          const auto id = static_cast<int32_t>(word * 32) + std::countr_zero(bits);
          allowed.push_back(id);
          if (closes_[static_cast<size_t>(id)]) closing.push_back(id);
        }
      }
      if (*ends && (allowed.empty() || random() % 3 == 0)) return Hex(text);
      const auto& from = !closing.empty() && random() % 2 == 0 ? closing : allowed;
      if (from.empty()) return nullptr;
      const TokenId token(from[random() % from.size()]);
      text += tokenizer_->TokenBytes(token);
      if (!matcher.Push(token).ok()) return nullptr;
    }
    return nullptr;
  }

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::shared_ptr<const text::GrammarVocabulary> vocabulary_;
  text::TokenMask mask_;
  std::vector<bool> closes_;
};

int Main(int argc, char** argv) {
  std::string model;
  CLI::App app("Schemas as lines of JSON; compare.py drives it.");
  app.add_option("--model", model, "folder or file with the tokenizer")->required();
  CLI11_PARSE(app, argc, argv);
  Bench bench(model);
  const auto print = [](const Json& line) {
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  };
  print({{"commit", GetBuildInfo().commit}, {"vocabulary", bench.Vocabulary()}});
  for (std::string line; std::getline(std::cin, line);) print(bench.Run(Json::parse(line)));
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
