#include "bench_serve/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace atom::bench_serve {
namespace {

// Units of the drawing; the page scales it.
constexpr double kWidth = 560;
constexpr double kHeight = 250;
constexpr double kLeft = 56;
constexpr double kRight = 12;
constexpr double kTop = 34;
constexpr double kBottom = 40;
constexpr double kTimelineWidth = 1140;

// 1, 2 or 5 times a power of ten, so that about `count` steps make `max`.
double nice_step(double max, double count) {
  const double raw = std::max(max, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double digit = raw / power;
  return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

std::string tick_label(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::round(value * 1e6) / 1e6);
}

class Canvas {
 public:
  Canvas(double width, double height, double x_max, double y_max)
      : width_(width),
        height_(height),
        x_max_(std::max(x_max, 1e-9)),
        y_max_(std::max(y_max, 1e-9)) {}

  double x(double value) const { return kLeft + value / x_max_ * (width_ - kLeft - kRight); }
  double y(double value) const {
    return height_ - kBottom - value / y_max_ * (height_ - kTop - kBottom);
  }

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }

  void open(const std::string& title) {
    add("<svg{} viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"{}\">",
        width_ > kWidth ? " class=\"wide\"" : "",
        width_,
        height_,
        html_escape(title));
    add("<text class=\"title\" x=\"{:g}\" y=\"16\">{}</text>", kLeft, html_escape(title));
  }

  void x_axis(const std::string& label) {
    const double step = nice_step(x_max_, width_ > 800 ? 12 : 6);
    for (double value = 0; value <= x_max_ * 1.0001; value += step) {
      add("<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:g}\">{}</text>",
          x(value),
          height_ - kBottom + 15,
          tick_label(value));
    }
    add("<line class=\"axis\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:g}\" y2=\"{:g}\"/>",
        kLeft,
        width_ - kRight,
        height_ - kBottom,
        height_ - kBottom);
    add("<text class=\"tick\" text-anchor=\"end\" x=\"{:g}\" y=\"{:g}\">{}</text>",
        width_ - kRight,
        height_ - kBottom + 31,
        html_escape(label));
  }

  void y_axis(const std::string& label) {
    const double step = nice_step(y_max_, 4);
    for (double value = 0; value <= y_max_ * 1.0001; value += step) {
      if (value > 0) {
        add("<line class=\"grid\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
            kLeft,
            width_ - kRight,
            y(value),
            y(value));
      }
      add("<text class=\"tick\" text-anchor=\"end\" x=\"{:g}\" y=\"{:.1f}\">{}</text>",
          kLeft - 6,
          y(value) + 4,
          tick_label(value));
    }
    add("<text class=\"tick\" x=\"{:g}\" y=\"{:g}\">{}</text>",
        kLeft,
        height_ - kBottom + 31,
        html_escape(label));
  }

  std::string close() {
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  const double width_;
  const double height_;
  const double x_max_;
  const double y_max_;
  std::string text_;
};

void draw_series(const Plot& plot, const PlotSeries& series, size_t index, Canvas* canvas) {
  std::string path;
  double last_x = 0;
  for (const auto& [x, y] : series.points) {
    if (x > plot.x_max) break;
    path += fmt::format("{}{:.1f} {:.1f}",
                        path.empty() ? "M" : "L",
                        canvas->x(x),
                        canvas->y(std::min(y, plot.y_max)));
    last_x = x;
  }
  if (path.empty()) return;
  if (series.filled) {
    canvas->add("<path class=\"area c{}\" d=\"{}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\"/>",
                index,
                path,
                canvas->x(last_x),
                canvas->y(0),
                canvas->x(series.points.front().first),
                canvas->y(0));
  }
  canvas->add("<path class=\"line c{}\" d=\"{}\"/>", index, path);
}

// The labels come last, so that no line crosses them.
void draw_marks(const Plot& plot, Canvas* canvas) {
  std::string labels;
  for (size_t i = 0; i < plot.marks.size(); ++i) {
    const PlotMark& mark = plot.marks[i];
    if (mark.x > plot.x_max) continue;
    const double x = canvas->x(mark.x);
    // Labels at different heights, so that close marks can be told apart.
    const double y = kHeight - kBottom - 58 + 18 * static_cast<double>(i);
    const bool is_right = x > kWidth * 0.7;
    canvas->add("<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\"/>",
                x,
                kTop,
                kHeight - kBottom);
    labels += fmt::format(
        "<text class=\"tick label\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:g}\">{}</text>",
        is_right ? "end" : "start",
        is_right ? x - 4 : x + 4,
        y,
        html_escape(mark.label));
  }
  canvas->add("{}", labels);
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += static_cast<uint8_t>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

std::string svg_plot(const Plot& plot, std::span<const PlotSeries> series) {
  Canvas canvas(kWidth, kHeight, plot.x_max, plot.y_max);
  canvas.open(plot.title);
  canvas.y_axis(plot.y_label);
  canvas.x_axis(plot.x_label);
  for (size_t i = 0; i < series.size(); ++i) draw_series(plot, series[i], i, &canvas);
  draw_marks(plot, &canvas);
  double legend = kWidth - kRight;
  for (size_t i = series.size(); i-- > 0;) {
    if (series[i].name.empty()) continue;
    legend -= 8 * static_cast<double>(series[i].name.size());  // about as wide as it will be
    canvas.add("<text class=\"tick legend\" x=\"{:.1f}\" y=\"16\">{}</text>",
               legend,
               html_escape(series[i].name));
    canvas.add(
        "<rect class=\"key c{}\" x=\"{:.1f}\" y=\"7\" width=\"9\" height=\"9\"/>", i, legend - 14);
    legend -= 30;
  }
  return canvas.close();
}

std::string svg_timeline(std::span<const TimelineRow> rows, double x_max) {
  const double row_height =
      std::clamp(600.0 / static_cast<double>(std::max<size_t>(rows.size(), 1)), 2.0, 10.0);
  const double height = kTop + kBottom + row_height * static_cast<double>(rows.size());
  Canvas canvas(kTimelineWidth, height, x_max, 1);
  canvas.open("Requests: waiting for the first token, then generating");
  canvas.x_axis("seconds");
  const auto bar = [&](double start, double end, double y, const char* kind) {
    canvas.add("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
               kind,
               canvas.x(start),
               y,
               std::max(canvas.x(end) - canvas.x(start), 0.6),
               row_height * 0.8);
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const TimelineRow& row = rows[i];
    const double y = kTop + row_height * static_cast<double>(i);
    canvas.add("<g><title>{}</title>", html_escape(row.tip));
    const double first = row.first_token < 0 ? row.end : row.first_token;
    bar(row.start, first, y, row.failed ? "bar bad" : "bar c1");
    if (first < row.end) bar(first, row.end, y, row.failed ? "bar bad" : "bar c0");
    canvas.add("</g>");
  }
  return canvas.close();
}

}  // namespace atom::bench_serve
