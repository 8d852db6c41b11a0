#include "lab/simulate/fleet_model.h"

#include <gtest/gtest.h>

#include <string>

#include "lab/simulate/plot.h"

namespace baton::lab::simulate {
namespace {

TEST(FleetModelTest, ReadsWhatItWrites) {
  FleetModel model;
  model.prefill_workers = 3;
  model.prefill_slowness = {1, 2.5};
  model.decode_cache = true;
  const auto read = ParseFleetModel(ToJson(model));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(model));
  EXPECT_EQ(read->Slowness(1), 2.5);
  EXPECT_EQ(read->Slowness(2), 1);
}

TEST(FleetModelTest, NamesTheFieldThatIsNoGood) {
  for (const auto& [json, what] :
       {std::pair<std::string, std::string>{R"({"prefill_workers": 0})", "prefill_workers"},
        {R"({"step_base": "fast"})", "step_base"},
        {R"({"prefill_token": -1})", "prefill_token"},
        {R"({"prefill_slowness": [0]})", "prefill_slowness"},
        {R"({"prefil_workers": 8})", "prefil_workers"},
        {R"({"decode_cache": 1})", "decode_cache"},
        {"[]", "object"},
        {"{", "JSON"}}) {
    const auto model = ParseFleetModel(json);
    ASSERT_TRUE(absl::IsInvalidArgument(model.status())) << json;
    EXPECT_NE(std::string(model.status().message()).find(what), std::string::npos) << model.status();
  }
}

TEST(PlotTest, DrawsOneLinePerCurveAndEscapesNames) {
  const std::string svg = PlotSvg("a < b", "x", "y", {{"one", {{1, 2}, {2, 3}}}, {"two & three", {{1, 0}}}});
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, 2u);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("two &amp; three"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace baton::lab::simulate
