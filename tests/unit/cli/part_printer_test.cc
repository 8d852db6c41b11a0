#include "cli/chat/part_printer.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

v1::PartEvent* Add(v1::Delta* delta) { return delta->add_parts(); }

void Start(v1::Delta* delta, v1::PartStart::Kind kind, const std::string& name = "") {
  v1::PartStart* const start = Add(delta)->mutable_start();
  start->set_kind(kind);
  start->set_name(name);
}

TEST(PartPrinterTest, TextAndCallsGoOutAndThinkingBeside) {
  const Terminal plain;
  PartPrinter printer(plain, plain);
  v1::Delta thinking;
  Start(&thinking, v1::PartStart::KIND_THINKING);
  Add(&thinking)->set_text("hm");
  EXPECT_EQ(printer.Show(thinking).err, "hm");
  v1::Delta text;
  Add(&text)->mutable_end()->set_complete(true);
  Start(&text, v1::PartStart::KIND_TEXT);
  Add(&text)->set_text("I look.");
  text.set_text("I look.");
  const PartPrinter::Shown said = printer.Show(text);
  EXPECT_EQ(said.err, "\n");
  EXPECT_EQ(said.out, "I look.");
  v1::Delta calls;
  Add(&calls)->mutable_end()->set_complete(true);
  for (const bool complete : {true, false}) {
    Start(&calls, v1::PartStart::KIND_TOOL_CALL, "f");
    Add(&calls)->set_arguments_json("{\"a\":");
    Add(&calls)->set_arguments_json("1}");
    Add(&calls)->mutable_end()->set_complete(complete);
  }
  Start(&calls, v1::PartStart::KIND_TEXT);
  Add(&calls)->set_text("So.");
  const PartPrinter::Shown called = printer.Show(calls);
  EXPECT_EQ(called.out, "\ncall f {\"a\":1}\ncall f {\"a\":1}\nSo.");
  EXPECT_EQ(called.err, "(this call is not complete)\n");
}

TEST(PartPrinterTest, WithoutPartsTheTextIsAll) {
  const Terminal plain;
  PartPrinter printer(plain, plain);
  v1::Delta delta;
  delta.set_text("<think>hm");
  EXPECT_EQ(printer.Show(delta).out, "<think>hm");
}

TEST(PartPrinterTest, HiddenThinkingShowsNothing) {
  const Terminal plain;
  PartPrinter printer(plain, plain);
  v1::Delta delta;
  Start(&delta, v1::PartStart::KIND_THINKING);
  Add(&delta)->mutable_end()->set_complete(true);
  EXPECT_EQ(printer.Show(delta).err, "");
}

}  // namespace
}  // namespace baton::cli
