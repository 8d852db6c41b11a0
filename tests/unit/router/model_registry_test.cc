#include "router/api/model_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "router/api/request_preparer.h"

namespace baton::router {
namespace {

using testing::HasSubstr;

const std::string kRegistryModel = std::string(BATON_SOURCE_DIR) + "/models/baton-tiny";

ServedModel Tiny(const std::string& name) {
  auto model = ServedModel::Load(kRegistryModel, name);
  BATON_CHECK(model.ok()) << model.status();
  return *std::move(model);
}

// The shipped model under two names; the second may be asked for less.
ModelRegistry TwoModels() {
  ServedModel small = Tiny("small");
  small.context = 8;
  small.chat_template = nullptr;
  std::vector<ServedModel> models;
  models.push_back(Tiny("tiny"));
  models.push_back(std::move(small));
  auto registry = ModelRegistry::Create(std::move(models));
  BATON_CHECK(registry.ok()) << registry.status();
  return *std::move(registry);
}

TEST(ModelRegistryTest, FindsAModelByItsName) {
  const ModelRegistry registry = TwoModels();
  const auto tiny = registry.Find("tiny"), small = registry.Find("small");
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ((*tiny)->name, "tiny");
  EXPECT_EQ((*small)->name, "small");
  EXPECT_EQ((*small)->context, 8);
  EXPECT_EQ((*tiny)->config, (*small)->config) << "one folder";
}

TEST(ModelRegistryTest, TheFirstIsForRequestsThatNameNone) {
  const ModelRegistry registry = TwoModels();
  EXPECT_EQ(registry.default_model().name, "tiny");
  EXPECT_EQ(*registry.Find(""), &registry.default_model());
  ASSERT_EQ(registry.models().size(), 2u);
  EXPECT_EQ(registry.models()[0].get(), &registry.default_model());
  EXPECT_EQ(registry.models()[1]->name, "small");
}

TEST(ModelRegistryTest, AnUnknownNameIsRefusedWithTheList) {
  const auto unknown = TwoModels().Find("gpt-9");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.status().message(), R"(model: "gpt-9" is not served here; use one of "tiny", "small")");
  EXPECT_FALSE(TwoModels().Find("tin").ok());
  EXPECT_FALSE(TwoModels().Find("Tiny").ok());
  std::vector<ServedModel> one;
  one.push_back(Tiny("tiny"));
  EXPECT_EQ(ModelRegistry::Create(std::move(one))->Find("small").status().message(),
            R"(model: "small" is not served here; use "tiny")");
}

TEST(ModelRegistryTest, ATenantSeesTheModelsThatItMayUse) {
  std::vector<ServedModel> models(3);
  models[0].name = "for-ads";
  models[0].tenants = {"ads"};
  models[1].name = "for-all";
  models[2].name = "for-both";
  models[2].tenants = {"ads", "search"};
  const auto registry = ModelRegistry::Create(std::move(models));
  ASSERT_TRUE(registry.ok());
  const kv::TenantSalt salt("tenant");
  const Tenant ads{.name = "ads", .salt = salt}, search{.name = "search", .salt = salt},
      router{.name = "", .salt = salt, .internal = true};
  EXPECT_EQ((*registry->Find("", ads))->name, "for-ads");
  EXPECT_EQ((*registry->Find("for-both", ads))->name, "for-both");
  EXPECT_EQ((*registry->Find("", search))->name, "for-all") << "the first that it may use";
  EXPECT_EQ((*registry->Find("for-both", search))->name, "for-both");
  EXPECT_EQ((*registry->Find("for-ads", router))->name, "for-ads");
  // As if it were not there.
  const auto hidden = registry->Find("for-ads", search);
  EXPECT_TRUE(absl::IsNotFound(hidden.status()));
  EXPECT_EQ(hidden.status().message(),
            R"(model: "for-ads" is not served here; use one of "for-all", "for-both")");
  v1::GenerateRequest request;
  EXPECT_TRUE(registry->Resolve(ads, &request).ok());
  EXPECT_EQ(request.model(), "") << "it is the registry's default";
  EXPECT_TRUE(registry->Resolve(search, &request).ok());
  EXPECT_EQ(request.model(), "for-all");

  std::vector<ServedModel> one(1);
  one[0].name = "for-ads";
  one[0].tenants = {"ads"};
  const auto closed = ModelRegistry::Create(std::move(one));
  for (const char* name : {"", "for-ads"}) {
    const auto refused = closed->Find(name, search);
    EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("tenant \"search\" may use no model"));
  }
}

TEST(ModelRegistryTest, ModelsStayWhereTheyAreWhenTheRegistryIsMoved) {
  ModelRegistry registry = TwoModels();
  const ServedModel* const small = *registry.Find("small");
  const ModelRegistry moved = std::move(registry);
  EXPECT_EQ(*moved.Find("small"), small);
  EXPECT_EQ(small->name, "small");
}

TEST(ModelRegistryTest, RefusesNoModelNoNameAndOneNameForTwo) {
  EXPECT_EQ(ModelRegistry::Create({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ModelRegistry::Create({{.name = ""}}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto twice = ModelRegistry::Create({{.name = "a"}, {.name = "b"}, {.name = "a"}});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("two models have the name \"a\""));
}

// Limits, templates and vocabularies are those of the model that the request names.
TEST(ModelRegistryTest, ANameIsALine) {
  const ServedModel tiny = Tiny("tiny");
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x7f"), std::string("\xff"), std::string(257, 'a')}) {
    std::vector<ServedModel> models = {tiny};
    models.front().name = name;
    EXPECT_THAT(std::string(ModelRegistry::Create(std::move(models)).status().message()),
                HasSubstr("one line of UTF-8"));
  }
  std::vector<ServedModel> models = {tiny};
  models.front().name = "Qwen/Qwen3-8B <\u00e9> \"x\"";
  EXPECT_TRUE(ModelRegistry::Create(std::move(models)).ok());
}

TEST(ModelRegistryTest, ARequestIsPreparedForTheModelThatItNames) {
  const ModelRegistry registry = TwoModels();
  const RequestPreparer preparer(registry, [] { return uint64_t{1}; });
  const Tenant tenant{.salt = kv::TenantSalt("tenant")};
  v1::GenerateRequest request;
  for (int id = 20; id < 36; ++id) request.mutable_token_ids()->add_ids(id);

  ASSERT_TRUE(preparer.Check(request).ok());
  auto prepared = preparer.Prepare(request, tenant);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->model->name, "tiny");

  request.set_model("small");
  EXPECT_THAT(std::string(preparer.Prepare(request, tenant).status().message()), HasSubstr("context of 8"));
  request.mutable_token_ids()->mutable_ids()->Truncate(4);
  prepared = preparer.Prepare(request, tenant);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->model->name, "small");

  v1::ChatRequest chat;
  v1::Message* message = chat.mutable_conversation()->add_messages();
  message->set_role("user");
  message->set_content("Hello");
  EXPECT_TRUE(preparer.Check(chat).ok());
  chat.set_model("small");
  EXPECT_EQ(preparer.Check(chat).message(),
            "conversation: model \"small\" has no chat template; use Generate");

  v1::GenerateRequest counted;
  counted.set_text("Hello there");
  counted.set_model("other");
  EXPECT_EQ(preparer.PromptOf(counted, Tenant{.salt = kv::TenantSalt("")}).status().code(),
            absl::StatusCode::kNotFound);
  v1::DetokenizeRequest detokenize;
  for (int id = 20; id < 20 + 33; ++id) detokenize.add_token_ids(id);
  EXPECT_TRUE(preparer.Detokenize(detokenize).ok());
  detokenize.set_model("small");
  EXPECT_THAT(std::string(preparer.Detokenize(detokenize).status().message()), HasSubstr("at most 32"));
}

}  // namespace
}  // namespace baton::router
