// Whatever an older client or worker writes is still read as it meant it: every field, value and method that
// was on the wire at the commit of wire.txt (make_wire.py) is there today, with its name, number and types.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "baton/v1/blocks.pb.h"
#include "baton/v1/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "baton/v1/handoff.pb.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/prefill.pb.h"
#include "baton/v1/status.pb.h"
#include "baton/v1/worker.pb.h"

namespace baton {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

using Lines = std::set<std::string>;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

void Add(const EnumDescriptor& type, Lines* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->insert("value " + type.full_name() + "." + type.value(i)->name() + " = " +
                  std::to_string(type.value(i)->number()));
  }
}

void Add(const Descriptor& message, Lines* lines) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto* const oneof = field.real_containing_oneof();
    lines->insert("field " + field.full_name() + " = " + std::to_string(field.number()) +
                  (field.is_repeated() ? " repeated " : " single ") + TypeOf(field) +
                  (oneof == nullptr ? "" : " of " + oneof->name()));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) Add(*message.nested_type(i), lines);
  for (int i = 0; i < message.enum_type_count(); ++i) Add(*message.enum_type(i), lines);
}

void Add(const ServiceDescriptor& service, Lines* lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    lines->insert("method " + method.full_name() + ": " + (method.client_streaming() ? "stream " : "") +
                  method.input_type()->full_name() + " -> " + (method.server_streaming() ? "stream " : "") +
                  method.output_type()->full_name());
  }
}

Lines OnTheWireNow() {
  Lines lines;
  for (const FileDescriptor* file :
       {v1::FetchRequest::descriptor()->file(), v1::DecodeRequest::descriptor()->file(),
        v1::Finished::descriptor()->file(), v1::KvChunk::descriptor()->file(),
        v1::GenerateRequest::descriptor()->file(), v1::PrefillRequest::descriptor()->file(),
        v1::RetryInfo::descriptor()->file(), v1::WatchEvent::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) Add(*file->message_type(i), &lines);
    for (int i = 0; i < file->enum_type_count(); ++i) Add(*file->enum_type(i), &lines);
    for (int i = 0; i < file->service_count(); ++i) Add(*file->service(i), &lines);
  }
  return lines;
}

TEST(WireGoldenTest, WhatOlderClientsAndWorkersWriteAndReadIsStillThere) {
  std::ifstream file("tests/golden/wire/wire.txt");
  const Lines now = OnTheWireNow();
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    EXPECT_TRUE(now.contains(line)) << line << "\nis no longer so: an older peer would be misunderstood";
  }
  EXPECT_GT(lines, 250);
}

}  // namespace
}  // namespace baton
