#include "router/tenancy/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_replace.h"
#include "router/tenancy/api_key.h"
#include "router/tenancy/tenants_file.h"
#include "tests/patience.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ApiKeyTest, AKeyHasAnIdAndADigestAndNothingElsePasses) {
  const NewApiKey made = MakeApiKey();
  EXPECT_EQ(ApiKeyId(made.key), made.id);
  EXPECT_EQ(ApiKeyDigest(made.key), ParseDigest(made.sha256));
  EXPECT_NE(MakeApiKey().key, made.key);
  EXPECT_THAT(made.sha256, Not(HasSubstr(made.key.substr(16, 8))));
  EXPECT_FALSE(ApiKeyId(made.key.substr(1)).has_value());
  EXPECT_FALSE(ApiKeyId(made.key + "0").has_value());
  EXPECT_FALSE(ApiKeyId("").has_value());
  std::string other = made.key;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(SameDigest(ApiKeyDigest(other), ApiKeyDigest(made.key)));
  EXPECT_FALSE(ParseDigest(made.sha256 + "00").has_value());
  EXPECT_FALSE(ParseDigest("Z" + made.sha256.substr(1)).has_value());
}

class TenantsTest : public ::testing::Test {
 protected:
  TenantsTest() : folder_(::testing::TempDir() + "/tenants_" + RandomName()) {
    std::filesystem::create_directories(folder_);
    file_ = folder_ + "/tenants.json";
  }
  ~TenantsTest() override { std::filesystem::remove_all(folder_); }
  static std::string RandomName() { return MakeApiKey().id; }

  // `text` with a key's id and digest where it says $ID1, $SHA1, $ID2, $SHA2.
  void Write(const std::string& text) {
    const std::string filled = absl::StrReplaceAll(
        text, {{"$ID1", a_.id}, {"$SHA1", a_.sha256}, {"$ID2", b_.id}, {"$SHA2", b_.sha256}});
    std::ofstream(file_ + ".new") << filled;
    std::filesystem::rename(file_ + ".new", file_);
  }
  absl::Status Open() {
    auto opened = Tenants::Open({.file = file_, .labels = 1},
                                [this](const Tenant& tenant) { heard_[tenant.name] = tenant.limits; });
    if (opened.ok()) tenants_ = *std::move(opened);
    return opened.status();
  }
  // The tenant's name, or why not.
  std::string Who(const Credentials& credentials) {
    Denied denied;
    const auto tenant = tenants_->Identify(credentials, &denied).tenant;
    return tenant != nullptr ? tenant->name : std::string(DenialName(denied.why));
  }

  static constexpr char kTwo[] = R"({"tenants": [
    {"name": "a", "keys": [{"id": "$ID1", "sha256": "$SHA1"}], "weight": 2, "requests_per_minute": 7},
    {"name": "b", "keys": [{"id": "$ID2", "sha256": "$SHA2"}], "certificates": ["b.example.org"]}]})";

  const std::string folder_;
  std::string file_;
  const NewApiKey a_ = MakeApiKey();
  const NewApiKey b_ = MakeApiKey();
  std::map<std::string, admission::TenantLimits> heard_;
  std::unique_ptr<Tenants> tenants_;
};

TEST_F(TenantsTest, WithoutAFileEverybodyIsTheDefault) {
  file_.clear();
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Who({}), "default");
  EXPECT_EQ(Who({.key = "anything"}), "default");
  EXPECT_TRUE(heard_.contains("default"));
}

TEST_F(TenantsTest, KeysAndCertificatesNameTheirTenants) {
  Write(kTwo);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Who({.key = a_.key}), "a");
  EXPECT_EQ(Who({.key = b_.key}), "b");
  EXPECT_EQ(Who({.key = "", .certificate_names = {"x", "b.example.org"}}), "b");
  EXPECT_EQ(Who({.key = "", .certificate_names = {"x"}}), "unknown_certificate");
  EXPECT_EQ(Who({}), "no_key");
  EXPECT_EQ(Who({.key = MakeApiKey().key}), "unknown_key");
  EXPECT_EQ(Who({.key = "secret"}), "unknown_key");
  std::string wrong = a_.key;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_EQ(Who({.key = wrong}), "unknown_key");
  EXPECT_EQ(heard_["a"].weight, 2);
  EXPECT_EQ(heard_["a"].requests_per_minute, 7);

  Denied denied;
  tenants_->Identify({.key = wrong}, &denied);
  EXPECT_TRUE(absl::IsUnauthenticated(denied.status));
  EXPECT_THAT(std::string(denied.status.message()), Not(HasSubstr(wrong.substr(16))));
}

TEST_F(TenantsTest, SaltsAndLabelsDifferByTenant) {
  Write(kTwo);
  ASSERT_TRUE(Open().ok());
  Denied denied;
  const auto a = tenants_->Identify({.key = a_.key}, &denied).tenant;
  const auto b = tenants_->Identify({.key = b_.key}, &denied).tenant;
  EXPECT_NE(a->salt.bytes(), b->salt.bytes());
  EXPECT_NE(a->id, b->id);
  EXPECT_EQ(a->label, "a");
  EXPECT_EQ(b->label, "other") << "one label is all there is";
  ASSERT_TRUE(tenants_->Reload().ok());
  const auto again = tenants_->Identify({.key = a_.key}, &denied).tenant;
  EXPECT_EQ(again->salt.bytes(), a->salt.bytes()) << "or its prefixes would be lost";
  EXPECT_EQ(again->id, a->id);
}

TEST_F(TenantsTest, ACallerHasTheIdOfItsKeyOrTheNameInItsCertificate) {
  Write(kTwo);
  ASSERT_TRUE(Open().ok());
  Denied denied;
  EXPECT_EQ(tenants_->Identify({.key = a_.key}, &denied).key, a_.id);
  EXPECT_EQ(tenants_->Identify({.certificate_names = {"x.example.org", "b.example.org"}}, &denied).key,
            "b.example.org");
}

TEST_F(TenantsTest, ExpiredDisabledAndAnonymous) {
  Write(R"({"tenants": [
    {"name": "a", "keys": [{"id": "$ID1", "sha256": "$SHA1", "not_after": "2001-01-01T00:00:00Z"}]},
    {"name": "b", "disabled": true, "keys": [{"id": "$ID2", "sha256": "$SHA2"}]},
    {"name": "guest", "anonymous": true, "best_priority": 3}]})");
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Who({.key = a_.key}), "expired_key");
  EXPECT_EQ(Who({.key = b_.key}), "disabled");
  EXPECT_EQ(Who({}), "guest");
  Denied denied;
  tenants_->Identify({.key = b_.key}, &denied);
  EXPECT_TRUE(absl::IsPermissionDenied(denied.status));
}

TEST_F(TenantsTest, ARevokedKeyIsUnknownAfterReloadAndABadFileChangesNothing) {
  Write(kTwo);
  ASSERT_TRUE(Open().ok());
  Write("{\"tenants\": [{\"name\": \"a\"");
  EXPECT_TRUE(absl::IsInvalidArgument(tenants_->Reload()));
  EXPECT_EQ(Who({.key = a_.key}), "a");
  Write(R"({"tenants": [{"name": "b", "keys": [{"id": "$ID2", "sha256": "$SHA2"}]}]})");
  ASSERT_TRUE(tenants_->Reload().ok());
  EXPECT_EQ(Who({.key = a_.key}), "unknown_key");
  EXPECT_EQ(Who({.key = b_.key}), "b");
}

TEST_F(TenantsTest, NoticesANewFileByItself) {
  Write(kTwo);
  ASSERT_TRUE(Open().ok());
  tenants_->Watch(absl::Milliseconds(10));
  Write(R"({"tenants": []})");
  Await([&] { return Who({.key = a_.key}) != "a"; }, "the new file");
  EXPECT_EQ(Who({.key = a_.key}), "unknown_key");
}

TEST_F(TenantsTest, RefusesWhatIsWrongAndSaysWhereWithoutSecrets) {
  const std::string secret = "do-not-show-this-salt";
  const std::map<std::string, std::string> wrong = {
      {R"([])", "not an object"},
      {R"({})", "\"tenants\" is missing"},
      {R"({"tenants": {}})", "not a list"},
      {R"({"tenants": [{"name": "a", "wieght": 2}]})", "tenants[0]: unknown field \"wieght\""},
      {R"({"tenants": [{"name": "a b"}]})", "\"name\""},
      {R"({"tenants": [{"name": "other"}]})", "\"name\""},
      {R"({"tenants": [{"name": "a", "weight": 0}]})", "weight"},
      {R"({"tenants": [{"name": "a", "salt": "short"}]})", "salt"},
      {R"({"tenants": [{"name": "a", "requests_per_minute": -1}]})", "requests_per_minute"},
      {R"({"tenants": [{"name": "a"}, {"name": "a"}]})", "tenants[1]: the name \"a\""},
      {R"({"tenants": [{"name": "a", "anonymous": true}, {"name": "b", "anonymous": true}]})", "anonymous"},
      {R"({"tenants": [{"name": "a", "salt": "do-not-show-this-salt"}, {"name": "b", "salt": "do-not-show-this-salt"}]})",
       "the salt"},
      {R"({"tenants": [{"name": "a", "keys": [{"id": "$ID1", "sha256": "do-not-show-this-salt"}]}]})",
       "never put the key itself"},
      {R"({"tenants": [{"name": "a", "keys": [{"id": "do-not-show-this-salt", "sha256": "$SHA1"}]}]})",
       "\"id\""},
      {R"({"tenants": [{"name": "a", "keys": [{"id": "$ID1", "sha256": "$SHA1", "not_after": "soon"}]}]})",
       "keys[0]: field \"not_after\""},
      {R"({"tenants": [{"name": "a", "keys": [{"id": "$ID1", "sha256": "$SHA1"}]},
                       {"name": "b", "keys": [{"id": "$ID1", "sha256": "$SHA2"}]}]})",
       "tenants[1]: the key"},
      {R"({"tenants": [{"name": "a", "queue": {"requests": "many"}}]})", "tenants[0].queue"},
  };
  for (const auto& [text, problem] : wrong) {
    Write(text);
    const absl::Status status = Open();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(problem)) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(secret))) << text;
  }
  std::filesystem::remove(file_);
  EXPECT_TRUE(absl::IsNotFound(Open()));
}

// The rule of `baton key new`, too.
TEST(TenantNameTest, IsOneThatTheFileTakes) {
  for (const std::string& name :
       {std::string("a"), std::string("search-2"), std::string("team.prod_1"), std::string(64, 'x')}) {
    EXPECT_TRUE(CheckTenantName(name).ok()) << name;
  }
  for (const std::string& name : {std::string(), std::string("a b"), std::string("other"),
                                  std::string(65, 'x'), std::string("caf\u00e9"), std::string("a\"b")}) {
    EXPECT_EQ(CheckTenantName(name).code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(std::string(CheckTenantName(name).message()).find("1 to 64 letters"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::router
