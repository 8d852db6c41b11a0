#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nlohmann/json.hpp"
#include "tests/unit/text/tokenizer_folders.h"

namespace baton::text {
namespace {

using testing::HasSubstr;

TokenId IdOf(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->size(), 1u) << text;
  return ids->front();
}

TEST(TokenizerTest, NamesTheMissingFile) {
  const auto tokenizer = Tokenizer::Load("/nonexistent/model");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("/nonexistent/model/tokenizer.json"));
}

TEST(TokenizerTest, NamesATokenizerOfAnotherFormat) {
  const TemporaryFolder folder;
  for (const std::string other : {"vocab.json", "tokenizer.model", "tekken.json"}) {
    folder.Write(other, "{}");
    const auto tokenizer = Tokenizer::Load(folder.path());
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(tokenizer.status().message(),
                HasSubstr("no such file, but " + other + ", which is not read"));
  }
}

// The ids are those of transformers 5.23 for the same two files.
TEST(TokenizerTest, TokensOfTheConfigAloneAreAdded) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", ReadAll(FolderOf("qwen_like") + "/tokenizer.json"));
  folder.Write("tokenizer_config.json", R"({"eos_token": "<late>", "pad_token": "not in the vocabulary",
      "added_tokens_decoder": {"12": {"content": "<soon>", "special": true, "rstrip": true},
                               "9": {"content": "<late>", "special": false},
                               "3": {"content": "<|end|>", "special": true, "lstrip": true}}})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = [&](std::string_view text) {
    std::vector<int32_t> found;
    const auto encoded = (*tokenizer)->Encode(text, /*add_special_tokens=*/false);
    for (const TokenId id : *encoded) {
      found.push_back(static_cast<int32_t>(id.value()));
    }
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(ids("a<late>b"), ElementsAre(68, 519, 69));
  EXPECT_THAT(ids("a<soon>  b"), ElementsAre(68, 520, 69));
  EXPECT_THAT(ids("<late><soon>"), ElementsAre(519, 520));
  EXPECT_EQ((*tokenizer)->vocabulary(), 521);
  EXPECT_TRUE((*tokenizer)->IsSpecial(TokenId(519))) << "it is the eos_token";
  folder.Write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "y"}}})");
  EXPECT_THAT(Tokenizer::Load(folder.path()).status().message(),
              HasSubstr("tokenizer_config.json: added_tokens_decoder: \"x\" is no token id"));
}

TEST(TokenizerTest, NamesAPointerOfGitLfs) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_THAT(Tokenizer::Load(folder.path()).status().message(), HasSubstr("only a Git LFS pointer"));
}

TEST(TokenizerTest, NamesTheDamagedFile) {
  const TemporaryFolder folder;
  for (const std::string content : {"", "{", "[]", "{\"model\": 3}", "\xff\xfe", "null"}) {
    folder.Write("tokenizer.json", content);
    const auto tokenizer = Tokenizer::Load(folder.path());
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(folder.path() + "/tokenizer.json"));
  }
}

TEST(TokenizerTest, RefusesAFolderInTheFilesPlace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/tokenizer.json");
  EXPECT_EQ(Tokenizer::Load(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TokenizerTest, RefusesEveryTruncation) {
  for (const std::string& kind : TokenizerKinds()) {
    std::string json = ReadAll(FolderOf(kind) + "/tokenizer.json");
    json.erase(json.find_last_of('}') + 1);
    for (size_t size = 0; size < json.size(); size += 1 + size / 16) {
      EXPECT_FALSE(Tokenizer::FromJson(std::string_view(json).substr(0, size)).ok())
          << kind << " at " << size;
    }
    EXPECT_FALSE(Tokenizer::FromJson(std::string_view(json).substr(0, json.size() - 1)).ok());
    EXPECT_TRUE(Tokenizer::FromJson(json).ok());
  }
}

// A damaged file is refused or works; it never takes the process down.
TEST(TokenizerTest, SurvivesDamage) {
  std::mt19937_64 engine = SeededEngine();
  int loaded = 0;
  for (int round = 0; round < 400; ++round) {
    std::string json =
        ReadAll(FolderOf(TokenizerKinds()[round % TokenizerKinds().size()]) + "/tokenizer.json");
    for (size_t hits = 1 + Below(engine, 3); hits > 0; --hits) {
      const size_t at = Below(engine, json.size());
      switch (Below(engine, 3)) {
        case 0:
          json[at] = static_cast<char>(Below(engine, 256));
          break;
        case 1:
          json.erase(at, 1 + Below(engine, 8));
          break;
        default:
          json.insert(at, json.substr(Below(engine, json.size()), 1 + Below(engine, 8)));
      }
    }
    const auto tokenizer = Tokenizer::FromJson(json);
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.status().message().empty());
      continue;
    }
    ++loaded;
    auto ids = (*tokenizer)->Encode("Hello, <s>wörld 12!", true);
    if (ids.ok()) (*tokenizer)->Decode(*ids, true).IgnoreError();
  }
  EXPECT_GT(loaded, 0);
}

TEST(TokenizerTest, StatesTheOffsetOfInvalidUtf8) {
  const auto tokenizer = LoadKind("llama3_like");
  const auto ids = tokenizer->Encode("h\xC3\xA9llo \xC3(", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ids.status().message(), HasSubstr("offset 7"));
}

TEST(TokenizerTest, NeverTruncatesOrPads) {
  auto json = nlohmann::ordered_json::parse(ReadAll(FolderOf("llama3_like") + "/tokenizer.json"));
  const std::string text = "one two three four five six";
  const auto whole = LoadKind("llama3_like")->Encode(text, true);
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 64}}},
                     {"direction", "Right"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "<s>"}};
  const auto tokenizer = Tokenizer::FromJson(json.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode(text, true), *whole);
}

// A post-processor states ids of its own, and the library puts them into every prompt unseen.
TEST(TokenizerTest, RefusesAPostProcessorThatAddsATokenThatNobodyHas) {
  using Json = nlohmann::ordered_json;
  const auto file = Json::parse(ReadAll(FolderOf("llama3_like") + "/tokenizer.json"));
  const auto tokenizer = LoadKind("llama3_like");
  const int64_t size = tokenizer->vocabulary();
  const auto pair = [](int64_t id) { return Json::array({"<s>", id}); };
  const auto in_template = [](int64_t id) {
    return Json{{"type", "TemplateProcessing"},
                {"single",
                 {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                  {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                {"pair", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {id}}, {"tokens", {"<s>"}}}}}}};
  };
  const auto in_bert = [&](int64_t cls, int64_t sep) {
    return Json{{"type", "BertProcessing"}, {"cls", pair(cls)}, {"sep", pair(sep)}};
  };
  const auto in_roberta = [&](int64_t cls, int64_t sep) {
    return Json{{"type", "RobertaProcessing"},
                {"cls", pair(cls)},
                {"sep", pair(sep)},
                {"trim_offsets", false},
                {"add_prefix_space", false}};
  };
  const auto in_sequence = [](Json inner) {
    const Json bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
    return Json{{"type", "Sequence"}, {"processors", Json::array({bytes, std::move(inner)})}};
  };
  const auto load = [&](const Json& processor) {
    Json changed = file;
    changed["post_processor"] = processor;
    return Tokenizer::FromJson(changed.dump());
  };
  for (const Json& sound :
       {in_template(size - 1), in_bert(0, size - 1), in_roberta(size - 1, 0), in_sequence(in_template(0))}) {
    const auto made = load(sound);
    ASSERT_TRUE(made.ok()) << sound << made.status();
    ASSERT_TRUE((*made)->Encode("a", true).ok());
  }
  for (const int64_t id : {size, int64_t{INT32_MAX} + 1, int64_t{UINT32_MAX}}) {
    for (const Json& unsound : {in_template(id), in_bert(id, 0), in_bert(0, id), in_roberta(id, 0),
                                in_roberta(0, id), in_sequence(in_template(id))}) {
      const auto made = load(unsound);
      EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << unsound;
      EXPECT_THAT(made.status().message(),
                  HasSubstr(fmt::format("post_processor adds \"<s>\" as token id {}", id)));
    }
  }
}

// A hole in the vocabulary is no token either, though it is below the largest id.
TEST(TokenizerTest, RefusesAPostProcessorThatAddsAHole) {
  const auto with = [](int64_t id) {
    return fmt::format(
        R"({{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "decoder": null,
             "post_processor": {{"type": "BertProcessing", "cls": ["a", {}], "sep": ["a", 0]}},
             "model": {{"type": "WordLevel", "vocab": {{"a": 0, "b": 5}}, "unk_token": "a"}}}})",
        id);
  };
  const auto sound = Tokenizer::FromJson(with(5));
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_EQ((*sound)->vocabulary(), 6);
  EXPECT_EQ(Tokenizer::FromJson(with(3)).status().code(), absl::StatusCode::kInvalidArgument);
}

// The library panics when it is to take more from the end of a text than there is.
TEST(TokenizerTest, RefusesADecoderThatFailsAtATokenAlone) {
  auto file = nlohmann::ordered_json::parse(ReadAll(FolderOf("llama2_like") + "/tokenizer.json"));
  bool found = false;
  for (auto& step : file["decoder"]["decoders"]) {
    if (step["type"] != "Strip") continue;
    step["stop"] = 4;
    found = true;
  }
  ASSERT_TRUE(found);
  const auto made = Tokenizer::FromJson(file.dump());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(made.status().message(), HasSubstr("fails at token id"));
}

TEST(TokenizerTest, ByteLevelTokensStandForTheirBytes) {
  const auto tokenizer = LoadKind("llama3_like");
  EXPECT_EQ(tokenizer->TokenBytes(IdOf(*tokenizer, "\n")), "\n");
  EXPECT_EQ(tokenizer->TokenBytes(IdOf(*tokenizer, " ")), " ");
  EXPECT_EQ(tokenizer->TokenBytes(IdOf(*tokenizer, "<|start|>")), "<|start|>");
  // Every single byte is in the vocabulary, once.
  std::vector<int> seen(256);
  for (int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
    const std::string_view bytes = tokenizer->TokenBytes(TokenId(id));
    if (bytes.size() == 1) ++seen[static_cast<uint8_t>(bytes[0])];
  }
  EXPECT_THAT(seen, testing::Each(1));
}

TEST(TokenizerTest, ByteFallbackTokensStandForTheirBytes) {
  const auto tokenizer = LoadKind("llama2_like");
  // A character that the vocabulary lacks, as four bytes behind the leading space.
  const auto ids = tokenizer->Encode("\U0001F680", false);
  ASSERT_TRUE(ids.ok());
  std::string bytes;
  for (const TokenId id : *ids) bytes += tokenizer->TokenBytes(id);
  EXPECT_EQ(bytes, " \U0001F680");
  EXPECT_EQ(tokenizer->TokenBytes(ids->back()), "\x80");
}

TEST(TokenizerTest, KnowsSpecialTokens) {
  const auto tokenizer = LoadKind("llama3_like");
  EXPECT_TRUE(tokenizer->IsSpecial(IdOf(*tokenizer, "<s>")));
  EXPECT_FALSE(tokenizer->IsSpecial(IdOf(*tokenizer, "<tool_call>")));
  EXPECT_FALSE(tokenizer->IsSpecial(IdOf(*tokenizer, "a")));
}

TEST(TokenizerTest, IdsOutsideTheVocabulary) {
  const auto tokenizer = LoadKind("llama3_like");
  for (const int64_t id : {int64_t{-1}, tokenizer->vocabulary(), int64_t{INT32_MAX}}) {
    const TokenId token(static_cast<int32_t>(id));
    EXPECT_EQ(tokenizer->TokenBytes(token), "");
    EXPECT_FALSE(tokenizer->IsSpecial(token));
    const auto text = tokenizer->Decode({&token, 1}, false);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(text.status().message(), HasSubstr(std::to_string(id)));
    EXPECT_THAT(text.status().message(), HasSubstr(std::to_string(tokenizer->vocabulary())));
  }
}

TEST(TokenizerTest, ByteLevelLosesNothing) {
  std::mt19937_64 engine = SeededEngine();
  const auto tokenizer = LoadKind("llama3_like");
  for (int round = 0; round < 300; ++round) {
    const std::string text = RandomText(engine, Below(engine, 60));
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*tokenizer->Decode(*ids, true), text);
  }
}

// Byte-level models are encoded word by word. The library's own way, all words first, is taken for whatever
// is not known to allow that, such as the same alphabet inside another sequence.
TEST(TokenizerTest, WordByWordIsAsAllAtOnce) {
  std::mt19937_64 engine = SeededEngine();
  for (const std::string kind : {"llama3_like", "qwen_like"}) {
    auto json = nlohmann::ordered_json::parse(ReadAll(FolderOf(kind) + "/tokenizer.json"));
    auto& steps = json["pre_tokenizer"]["pretokenizers"];
    ASSERT_EQ(steps.back()["type"], "ByteLevel") << kind;
    ASSERT_EQ(steps.back()["use_regex"], false) << "or this compares one way with itself";
    steps.back() = {{"type", "Sequence"}, {"pretokenizers", {steps.back()}}};
    const auto at_once = Tokenizer::FromJson(json.dump());
    ASSERT_TRUE(at_once.ok()) << at_once.status();
    const auto word_by_word = LoadKind(kind);
    std::vector<std::string> texts = {"",
                                      " ",
                                      "\n",
                                      "<s>",
                                      std::string(5000, 'a'),
                                      std::string(5000, ' '),
                                      std::string(3000, ' ') + "x",
                                      "'s 'S 'll\r\n\r\n  x\t1234567 \u00a0\u3000"};
    for (int round = 0; round < 300; ++round) texts.push_back(RandomText(engine, Below(engine, 200)));
    for (const std::string& text : texts) {
      EXPECT_EQ(*word_by_word->Encode(text, true), *(*at_once)->Encode(text, true)) << kind << ": " << text;
    }
  }
}

TEST(TokenizerTest, StopsAtTheMostTokens) {
  for (const std::string& kind : TokenizerKinds()) {
    const auto tokenizer = LoadKind(kind);
    std::string text;
    for (int i = 0; i < 200; ++i) text += "word" + std::to_string(i) + " ";
    const auto all = tokenizer->Encode(text, true);
    ASSERT_TRUE(all.ok());
    const auto size = static_cast<int64_t>(all->size());
    const auto fits = tokenizer->Encode(text, true, {.max_tokens = size, .wanted = nullptr});
    ASSERT_TRUE(fits.ok()) << kind << ": " << fits.status();
    EXPECT_EQ(*fits, *all);
    const auto over = tokenizer->Encode(text, true, {.max_tokens = size - 1, .wanted = nullptr});
    EXPECT_EQ(over.status().code(), absl::StatusCode::kOutOfRange) << kind << ": " << over.status();
  }
}

// Encoding a hundred thousand words ends a few hundred words after it is no longer wanted.
TEST(TokenizerTest, StopsWhenNobodyWaitsAnyMore) {
  const auto tokenizer = LoadKind("llama3_like");
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " w" + std::to_string(i % 1000);
  int asked = 0;
  ASSERT_TRUE(tokenizer->Encode(text, true, {.wanted = [&] { return ++asked > 0; }}).ok());
  EXPECT_GT(asked, 100) << "as it goes";
  for (const int enough : {0, 1, 10}) {
    asked = 0;
    const auto stopped = tokenizer->Encode(text, true, {.wanted = [&] { return ++asked <= enough; }});
    EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled) << stopped.status();
    EXPECT_EQ(asked, enough + 1) << "and not asked again";
  }
}

TEST(TokenizerTest, TheLeastTokensAreNeverMoreThanThereAre) {
  std::mt19937_64 engine = SeededEngine();
  // The other kinds make one token of unknown text, whatever its length.
  for (const std::string kind : {"llama2_like", "llama3_like", "qwen_like"}) {
    const auto tokenizer = LoadKind(kind);
    EXPECT_EQ(tokenizer->LeastTokens(""), 0);
    std::vector<std::string> texts;
    for (int round = 0; round < 200; ++round) texts.push_back(RandomText(engine, Below(engine, 300)));
    for (const char* run :
         {"a", " ", "=", "1", "\n", "the ", "\u00e9", "e\u0301", "\u1112\u1161\u11ab", "A"}) {
      std::string text;
      for (int i = 0; i < 2000; ++i) text += run;
      texts.push_back(text);
    }
    // As long as texts get: each token of the vocabulary, as often as it takes.
    for (int32_t id = 0; id < tokenizer->vocabulary(); id += 7) {
      std::string text;
      for (int i = 0; i < 50; ++i) text += tokenizer->TokenBytes(TokenId(id));
      texts.push_back(text);
    }
    for (const std::string& text : texts) {
      const auto tokens = tokenizer->Encode(text, false);
      if (!tokens.ok()) continue;  // bytes of tokens need not be UTF-8
      EXPECT_LE(tokenizer->LeastTokens(text), std::ssize(*tokens)) << kind << ": " << text.substr(0, 100);
    }
  }
}

TEST(TokenizerTest, TheLeastTokensFollowFromTheLongestTokenOfEachByte) {
  // The shipped model: no normalizer. Its longest token with a digit is that digit.
  const auto tokenizer = Tokenizer::Load(BATON_SOURCE_DIR "/models/baton-tiny");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int64_t digits = (*tokenizer)->LeastTokens(std::string(1000, '7'));
  const auto encoded = (*tokenizer)->Encode(std::string(1000, '7'), false);
  EXPECT_GE(digits, 500);
  EXPECT_LE(digits, std::ssize(*encoded));
  EXPECT_EQ((*tokenizer)->LeastTokens(std::string(2000, '7')), 2 * digits);
  EXPECT_EQ((*tokenizer)->LeastTokens(std::string(1000, '7') + std::string(1000, 'e')),
            (*tokenizer)->LeastTokens(std::string(1000, 'e') + std::string(1000, '7')));
}

TEST(TokenizerTest, LongRunsOfWhiteSpaceAndWordsStayLinear) {
  const auto tokenizer = LoadKind("llama3_like");
  for (const std::string& text :
       {std::string(1 << 18, ' ') + "x", std::string(1 << 18, '\n'), std::string(1 << 18, 'a')}) {
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*tokenizer->Decode(*ids, true), text);
  }
}

TEST(TokenizerTest, ServesManyThreads) {
  const auto tokenizer = LoadKind("qwen_like");
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word" + std::to_string(i) + " größer 日本 ";
  const auto expected = tokenizer->Encode(text, true);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        const auto ids = tokenizer->Encode(text, true);
        equal[t] += ids.ok() && *ids == *expected && *tokenizer->Decode(*ids, false) == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(10));
}

}  // namespace
}  // namespace baton::text
