// Plot: goodput against rate as an SVG file, one line per policy. No library: two axes and some polylines.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace baton::lab::simulate {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; x rising
};

std::string PlotSvg(const std::string& title, const std::string& x_label, const std::string& y_label,
                    const std::vector<Curve>& curves);

}  // namespace baton::lab::simulate
