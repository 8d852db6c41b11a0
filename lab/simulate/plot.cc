#include "lab/simulate/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace baton::lab::simulate {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 60, kRight = 170, kTop = 40, kBottom = 50;
// Okabe and Ito's palette: told apart by the colour-blind too.
constexpr std::array kColours = {"#000000", "#e69f00", "#56b4e9", "#009e73", "#999999",
                                 "#0072b2", "#d55e00", "#cc79a7", "#8c6d31", "#5254a3"};

// 1, 2 or 5 times a power of ten, at least a sixth of the range.
double TickOf(double range) {
  const double rough = std::max(range, 1e-9) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough) return step * power;
  }
  return 10 * power;
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string PlotSvg(const std::string& title, const std::string& x_label, const std::string& y_label,
                    const std::vector<Curve>& curves) {
  double x_least = INFINITY, x_most = -INFINITY, y_most = 0;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : curve.points) {
      x_least = std::min(x_least, x);
      x_most = std::max(x_most, x);
      y_most = std::max(y_most, y);
    }
  }
  if (!(x_least < x_most)) {
    x_least = std::isfinite(x_least) ? x_least - 1 : 0;
    x_most = x_least + 2;
  }
  y_most = std::max(y_most, 1e-9) * 1.05;
  const auto at_x = [&](double x) {
    return kLeft + (x - x_least) / (x_most - x_least) * (kWidth - kLeft - kRight);
  };
  const auto at_y = [&](double y) { return kHeight - kBottom - y / y_most * (kHeight - kTop - kBottom); };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"14\">{3}</text>\n",
      kWidth, kHeight, kLeft, Escaped(title));
  for (double tick = std::ceil(x_least / TickOf(x_most - x_least)) * TickOf(x_most - x_least); tick <= x_most;
       tick += TickOf(x_most - x_least)) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", at_x(tick),
                       kHeight - kBottom + 18, tick);
  }
  for (double tick = 0; tick <= y_most; tick += TickOf(y_most)) {
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
        kLeft, kWidth - kRight, at_y(tick), kLeft - 6, at_y(tick) + 4, tick);
  }
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 12, Escaped(x_label), (kTop + kHeight - kBottom) / 2,
      Escaped(y_label));
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    const double y = kTop + 10 + 18 * static_cast<double>(i);
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"", colour);
    for (const auto& [px, py] : curves[i].points) svg += fmt::format("{:.1f},{:.1f} ", at_x(px), at_y(py));
    svg += fmt::format(
        "\"/>\n<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"2\"/>"
        "<text x=\"{4}\" y=\"{5}\">{6}</text>\n",
        kWidth - kRight + 10, kWidth - kRight + 32, y, colour, kWidth - kRight + 38, y + 4,
        Escaped(curves[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace baton::lab::simulate
