// Every field of the public requests, with values that it should not have: a refusal has a reason and names a
// field that there is, and the numbers and enums that have a range name themselves. A new field is found here
// by itself.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "common/rpc/status.h"
#include "router/api/classifiers.h"
#include "router/api/explained.h"
#include "router/api/request_preparer.h"
#include "router/api/wire.h"
#include "tests/unit/router/shipped_model.h"

namespace baton::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A way from a request to one of its fields, through the first element of lists.
using Way = std::vector<const FieldDescriptor*>;

std::string PathOf(const Way& way) {
  std::string path;
  for (const FieldDescriptor* field : way) {
    path += (path.empty() ? "" : ".") + std::string(field->name()) + (field->is_repeated() ? "[0]" : "");
  }
  return path;
}

// Ways to all fields that are no messages, of which no list and no JSON repeats.
void AddWays(const Descriptor& type, const Way& before, std::vector<Way>* ways) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    Way way = before;
    way.push_back(field);
    if (field->is_map() || field->message_type() == nullptr) {
      ways->push_back(way);
    } else if (field->message_type()->full_name() != "google.protobuf.Struct") {
      AddWays(*field->message_type(), way, ways);
    }
  }
}

// The message that holds the last field of the way; lists on the way have an element.
Message* Holder(const Way& way, Message* request) {
  Message* at = request;
  for (size_t i = 0; i + 1 < way.size(); ++i) {
    const Reflection& reflection = *at->GetReflection();
    if (!way[i]->is_repeated()) {
      at = reflection.MutableMessage(at, way[i]);
    } else if (reflection.FieldSize(*at, way[i]) > 0) {
      at = reflection.MutableRepeatedMessage(at, way[i], 0);
    } else {
      at = reflection.AddMessage(at, way[i]);
    }
  }
  return at;
}

// Sets the field to one value after the other that it may not be made for, and calls `check` with each.
void WithBadValues(const Way& way, const Message& request, const std::function<void(const Message&)>& check) {
  const FieldDescriptor* const field = way.back();
  const auto with = [&](const auto& set, const auto& add) {
    std::unique_ptr<Message> copy(request.New());
    copy->CopyFrom(request);
    Message* const holder = Holder(way, copy.get());
    const Reflection& reflection = *holder->GetReflection();
    if (field->is_repeated()) {
      reflection.ClearField(holder, field);
      add(reflection, holder);
    } else {
      set(reflection, holder);
    }
    check(*copy);
  };
#define BATON_WITH(Type, value)                                                \
  with([&](const Reflection& r, Message* m) { r.Set##Type(m, field, value); }, \
       [&](const Reflection& r, Message* m) { r.Add##Type(m, field, value); })
  if (field->is_map()) {
    with([](const Reflection&, Message*) {},
         [&](const Reflection& r, Message* m) {
           Message* const entry = r.AddMessage(m, field);
           entry->GetReflection()->SetInt32(entry, field->message_type()->field(0), -1);
         });
    return;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      for (const int32_t value :
           {-1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()})
        BATON_WITH(Int32, value);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      for (const uint32_t value : {0u, std::numeric_limits<uint32_t>::max()}) BATON_WITH(UInt32, value);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      BATON_WITH(UInt64, std::numeric_limits<uint64_t>::max());
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      for (const float value : {std::numeric_limits<float>::quiet_NaN(), -1e30f, 1e30f})
        BATON_WITH(Float, value);
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      BATON_WITH(Bool, true);
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      BATON_WITH(EnumValue, 99);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      for (const std::string& value : {std::string(), std::string("\xff"), std::string(100'000, '{')})
        BATON_WITH(String, value);
      return;
    default:
      FAIL() << PathOf(way) << " has a type that this test does not know";
  }
#undef BATON_WITH
}

// True if the path names a field, or a oneof, of the type.
bool Resolves(const Descriptor& type, std::string path) {
  const Descriptor* at = &type;
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    const std::string name = path.substr(0, std::min(path.find('['), end));
    path = end == path.size() ? "" : path.substr(end + 1);
    if (at == nullptr) return false;
    const FieldDescriptor* const field = at->FindFieldByName(name);
    if (field == nullptr) return at->FindOneofByName(name) != nullptr && path.empty();
    at = field->message_type();
  }
  return true;
}

class RefusedFieldsTest : public testing::Test {
 protected:
  template <typename Request>
  absl::Status Ask(const Message& message) const {
    Request request;
    const absl::Status parsed = ParseMessage(SerializeMessage(message), &request);
    if (!parsed.ok()) return parsed;
    const absl::Status checked = preparer_.Check(request);
    if (!checked.ok()) return checked;
    const absl::Status planned = Classifiers::Plan(nullptr, request, tenant_).status();
    if (!planned.ok()) return planned;
    return preparer_.Prepare(request, tenant_).status();
  }

  // Tries every field; gives the paths of those, but for switches, that no refusal has named.
  template <typename Request>
  std::set<std::string> Unnamed(const Request& good) const {
    EXPECT_TRUE(Ask<Request>(good).ok()) << Ask<Request>(good);
    std::vector<Way> ways;
    AddWays(*Request::descriptor(), {}, &ways);
    std::set<std::string> unnamed;
    for (const Way& way : ways) {
      bool named = false;
      WithBadValues(way, good, [&](const Message& bad) {
        const absl::Status refused = Explained(Ask<Request>(bad));
        if (refused.ok()) return;
        const std::string field = rpc::FieldOf(refused);
        v1::Reason reason;
        EXPECT_TRUE(v1::Reason_Parse("REASON_" + rpc::ReasonOf(refused), &reason)) << refused;
        EXPECT_NE(reason, v1::REASON_INTERNAL) << PathOf(way) << ": " << refused;
        EXPECT_FALSE(field.empty()) << PathOf(way) << ": " << refused;
        EXPECT_TRUE(Resolves(*Request::descriptor(), field)) << PathOf(way) << ": " << refused;
        EXPECT_LT(refused.message().size(), 1000u) << PathOf(way);
        const std::string path = PathOf(way);
        named |= field == path || field + "[0]" == path || field.starts_with(path);
      });
      if (!named && way.back()->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) unnamed.insert(PathOf(way));
    }
    return unnamed;
  }

  const ModelRegistry models_ = ShippedModel();
  const RequestPreparer preparer_{models_, [] { return uint64_t{1}; }};
  const Tenant tenant_{.salt = kv::TenantSalt("t")};
};

TEST_F(RefusedFieldsTest, OfChat) {
  v1::ChatRequest good;
  v1::Message& message = *good.mutable_conversation()->add_messages();
  message.set_role("user");
  message.set_content("Hello");
  const std::set<std::string> with_content = Unnamed(good);
  message.clear_content();
  message.add_parts()->set_text("Hello");
  std::set<std::string> unnamed;
  std::ranges::set_intersection(with_content, Unnamed(good), std::inserter(unnamed, unnamed.end()));
  EXPECT_THAT(unnamed, testing::ElementsAre("sampling.seed")) << "any number is a seed";
}

TEST_F(RefusedFieldsTest, OfGenerate) {
  v1::GenerateRequest good;
  good.set_text("Hello there");
  // A span is named as a whole.
  EXPECT_THAT(Unnamed(good), testing::ElementsAre("reusable[0].begin", "reusable[0].end", "sampling.seed"));
}

}  // namespace
}  // namespace baton::router
