// Plots as inline SVG. Colors come from the page: classes c0, c1 and bad, and currentColor.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atom::bench_serve {

struct PlotSeries {
  std::string name;                               // for the legend; empty: none
  std::vector<std::pair<double, double>> points;  // x ascending
  bool filled = false;                            // down to zero
};

struct PlotMark {
  double x = 0;
  std::string label;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  double x_max = 1;
  double y_max = 1;
  std::vector<PlotMark> marks;  // vertical lines
};

// Axes begin at zero. Points right of x_max are cut off.
std::string svg_plot(const Plot& plot, std::span<const PlotSeries> series);

// A row per bar group: from start to end, as one class or another.
struct TimelineRow {
  double start = 0, first_token = -1, end = 0;  // seconds
  bool failed = false;
  std::string tip;
};
std::string svg_timeline(std::span<const TimelineRow> rows, double x_max);

// Text that can stand in HTML and in its attributes.
std::string html_escape(std::string_view text);

}  // namespace atom::bench_serve
