#include "bench_serve/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "bench_serve/metric_names.h"
#include "bench_serve/svg_plot.h"

namespace atom::bench_serve {
namespace {

constexpr size_t kNumBins = 240;          // of plots over time
constexpr size_t kNumQuantiles = 400;     // points of a distribution
constexpr size_t kMaxTimelineRows = 400;  // more requests are thinned out
constexpr size_t kMaxErrors = 20;
constexpr double kMedian = 50;  // the percentile that has a column of that name

constexpr const char* kStyle = R"(<style>
:root { color-scheme: light dark; --page: #f7f7f5; --card: #ffffff; --ink: #1c1c1a;
  --soft: #6b6b66; --rule: #e3e3de; --c0: #2a6fd0; --c1: #e08a1e; --bad: #cc3344; }
@media (prefers-color-scheme: dark) { :root { --page: #161618; --card: #202023; --ink: #ececea;
  --soft: #9d9d97; --rule: #35353a; --c0: #6aa5f5; --c1: #f0ab4e; --bad: #f0707c; } }
body { margin: 0 auto; padding: 24px; max-width: 1200px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 28px 0 8px; }
p { color: var(--soft); margin: 2px 0; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 20px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.plots { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.card { overflow-x: auto; } svg { display: block; width: 100%; height: auto; }
.title { font: 600 14px system-ui, sans-serif; fill: var(--ink); }
.tick { font: 11px system-ui, sans-serif; fill: var(--soft); }
.axis { stroke: var(--soft); } .grid { stroke: var(--rule); }
.mark { stroke: var(--soft); stroke-dasharray: 3 3; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); }
.area { opacity: .18; } .area.c0, .bar.c0, .key.c0 { fill: var(--c0); }
.area.c1, .bar.c1, .key.c1 { fill: var(--c1); } .bar.bad { fill: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 500; }
.label { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.wide { min-width: 720px; }
@media (max-width: 600px) { body { padding: 10px; } .plots .tick { font-size: 15px; }
  .plots .legend { font-size: 14px; } .plots .title { font-size: 18px; }
  th, td { padding: 4px 6px; } }
tr:last-child td { border-bottom: 0; } td.text { text-align: left; overflow-wrap: anywhere; }
</style>
)";

class Page {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }
  void add_raw(std::string_view html) { text_ += html; }
  void tile(const std::string& value, const std::string& name) {
    add("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", value, html_escape(name));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string milliseconds(double value) {
  return value >= 10000 ? fmt::format("{:.1f} s", value / 1e3) : fmt::format("{:.1f} ms", value);
}

void add_tiles(const BenchmarkReport& report, Page* page) {
  const Metrics& metrics = report.metrics;
  page->add_raw("<div class=\"tiles\">\n");
  page->tile(fmt::format("{}", metrics.completed), "successful requests");
  page->tile(fmt::format("{}", metrics.failed), "failed requests");
  page->tile(fmt::format("{:.2f}", metrics.request_throughput), "requests/s");
  if (metrics.request_goodput) {
    page->tile(fmt::format("{:.2f}", *metrics.request_goodput), "good requests/s");
  }
  page->tile(fmt::format("{:.1f}", metrics.output_throughput), "output tokens/s");
  page->tile(fmt::format("{:.1f}", metrics.total_token_throughput), "tokens/s in all");
  page->tile(fmt::format("{}", metrics.max_concurrent_requests), "peak concurrency");
  for (const MetricName& metric : metric_names()) {
    const Summary& summary = metrics.*metric.summary;
    page->tile(summary.count == 0 ? std::string("-") : milliseconds(summary.median),
               fmt::format("median {}", metric.title));
  }
  page->add_raw("</div>\n");
}

std::vector<double> values_of(const BenchmarkReport& report, const MetricName& metric) {
  std::vector<double> values;
  const std::string_view key = metric.key;
  for (const RequestRecord& record : report.run.records) {
    if (!record.started() || record.answer.error_kind != ErrorKind::kNone) continue;
    if (key == "itl") {
      for (const float gap : record.answer.gaps) values.push_back(gap * 1e3);
      continue;
    }
    const double value = key == "ttft"   ? ttft_of(record)
                         : key == "tpot" ? tpot_of(record)
                                         : e2el_of(record);
    if (value >= 0) values.push_back(value * 1e3);
  }
  std::sort(values.begin(), values.end());
  return values;
}

std::string distribution_plot(const BenchmarkReport& report, const MetricName& metric) {
  const std::vector<double> values = values_of(report, metric);
  Plot plot;
  plot.title = fmt::format("{} ({})", metric.label, metric.title);
  plot.y_label = "% of requests within";
  if (std::string_view(metric.key) == "itl") plot.y_label = "% of gaps within";
  plot.y_max = 100;
  PlotSeries series;
  if (!values.empty()) {
    // The last few would squeeze all others into a corner; the table has them.
    plot.x_max = std::max(percentile(values, 99.5) * 1.08, 1e-3);
    const double max = values.back();
    plot.x_label = max > plot.x_max ? fmt::format("ms (the longest {:.1f})", max) : "ms";
    series.points.emplace_back(values.front(), 0);
    for (size_t i = 0; i <= kNumQuantiles; ++i) {
      const double percent = 100.0 * static_cast<double>(i) / kNumQuantiles;
      series.points.emplace_back(percentile(values, percent), percent);
    }
    for (const double percent : {50.0, 90.0, 99.0}) {
      const double value = percentile(values, percent);
      plot.marks.push_back({value, fmt::format("p{:g} {:.1f}", percent, value)});
    }
  }
  return svg_plot(plot, {&series, 1});
}

// How many requests are between `from` and `to` (members of a record's life) in each bin, at most.
template <typename From, typename To>
PlotSeries count_over_time(const BenchmarkReport& report, const char* name, From from, To to) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : report.run.records) {
    if (!record.started() || to(record) < from(record)) continue;
    changes.emplace_back(from(record), 1);
    changes.emplace_back(to(record), -1);
  }
  std::sort(changes.begin(), changes.end());
  const double width = std::max(report.metrics.duration, 1e-6) / kNumBins;
  PlotSeries series{name, {}, true};
  int count = 0;
  size_t next = 0;
  for (size_t bin = 0; bin < kNumBins; ++bin) {
    int most = count;
    while (next < changes.size() && changes[next].first < width * double(bin + 1)) {
      count += changes[next++].second;
      most = std::max(most, count);
    }
    series.points.emplace_back(width * static_cast<double>(bin), most);
  }
  series.points.emplace_back(report.metrics.duration, count);
  return series;
}

double highest(const PlotSeries& series) {
  double most = 0;
  for (const auto& [x, y] : series.points) most = std::max(most, y);
  return most;
}

std::string concurrency_plot(const BenchmarkReport& report) {
  const auto start = [](const RequestRecord& record) { return record.start; };
  const auto end = [](const RequestRecord& record) { return record.answer.end; };
  const auto first = [](const RequestRecord& record) {
    return record.answer.first_token < 0 ? record.answer.end : record.answer.first_token;
  };
  const PlotSeries series[] = {count_over_time(report, "in flight", start, end),
                               count_over_time(report, "without a token yet", start, first)};
  Plot plot;
  plot.title = "Requests over time";
  plot.x_label = "seconds";
  plot.y_label = "requests";
  plot.x_max = report.metrics.duration;
  plot.y_max = std::max(highest(series[0]) * 1.1, 1.0);
  return svg_plot(plot, series);
}

// Seconds: 1, 2 or 5 times a power of ten, so that a run has at most some hundred. Bins of less
// than 50 ms would show single steps of the server.
double bin_width(double duration) {
  const double least = std::max(duration / (kNumBins / 2.0), 0.05);
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= least * 0.999) return std::min(digit * power, duration);
  }
  return std::min(10 * power, duration);
}

std::string throughput_plot(const BenchmarkReport& report) {
  const double duration = std::max(report.metrics.duration, 1e-6);
  const double width = bin_width(duration);
  std::vector<double> bins(static_cast<size_t>(std::max(std::floor(duration / width), 1.0)));
  for (const RequestRecord& record : report.run.records) {
    visit_tokens(record, [&](double time, double tokens) {
      const auto bin = static_cast<size_t>(std::max(time, 0.0) / width);
      if (bin < bins.size()) bins[bin] += tokens / width;
    });
  }
  PlotSeries series{"", {}, true};
  for (size_t i = 0; i < bins.size(); ++i) {
    series.points.emplace_back(width * (static_cast<double>(i) + 0.5), bins[i]);
  }
  Plot plot;
  plot.title = "Output tokens per second over time";
  plot.x_label = fmt::format("seconds, in steps of {:.3g}", width);
  plot.y_label = "tokens/s";
  plot.x_max = duration;
  plot.y_max = std::max(highest(series) * 1.1, 1.0);
  return svg_plot(plot, {&series, 1});
}

std::string timeline(const BenchmarkReport& report) {
  std::vector<TimelineRow> rows;
  const auto& records = report.run.records;
  const size_t step = (records.size() + kMaxTimelineRows - 1) / kMaxTimelineRows;
  for (size_t i = 0; i < records.size(); i += std::max<size_t>(step, 1)) {
    const RequestRecord& record = records[i];
    if (!record.started()) continue;
    const Answer& answer = record.answer;
    TimelineRow row{
        record.start, answer.first_token, answer.end, answer.error_kind != ErrorKind::kNone, {}};
    row.tip = row.failed ? fmt::format("request {}: {}", i, answer.error)
                         : fmt::format(
                               "request {}: {} -> {} tokens, first after {:.1f} ms, all "
                               "after {:.1f} ms",
                               i,
                               input_tokens(record),
                               output_tokens(record),
                               ttft_of(record) * 1e3,
                               e2el_of(record) * 1e3);
    rows.push_back(std::move(row));
  }
  return svg_timeline(rows, report.metrics.duration);
}

void add_times(const BenchmarkReport& report, Page* page) {
  page->add_raw("<h2>Times in milliseconds</h2>\n<div class=\"card\"><table><tr><th></th>");
  for (const char* name : {"mean", "median", "std"}) page->add("<th>{}</th>", name);
  for (const double percent : report.options.metrics.percentiles) {
    if (percent != kMedian) page->add("<th>{}</th>", percentile_name(percent));
  }
  page->add_raw("<th>max</th></tr>\n");
  const auto add_row = [&](const std::string& name, const Summary& summary) {
    page->add("<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td>",
              html_escape(name),
              summary.mean,
              summary.median,
              summary.std);
    for (const auto& [percent, value] : summary.percentiles) {
      if (percent != kMedian) page->add("<td>{:.2f}</td>", value);
    }
    page->add("<td>{:.2f}</td></tr>\n", summary.max);
  };
  for (const MetricName& metric : metric_names()) {
    add_row(fmt::format("{} ({})", metric.title, metric.label), report.metrics.*metric.summary);
  }
  if (report.options.max_concurrency > 0) {
    add_row("waiting for the limit of concurrency", report.metrics.queue_time);
  }
  page->add_raw("</table></div>\n");
}

void add_settings(const BenchmarkReport& report, Page* page) {
  const BenchmarkOptions& options = report.options;
  page->add_raw("<h2>Run</h2>\n<div class=\"card\"><table>\n");
  const auto add_row = [&](const char* name, const std::string& value) {
    page->add("<tr><td>{}</td><td class=\"text\">{}</td></tr>\n", name, html_escape(value));
  };
  const auto rate = [](double value) { return fmt::format("{:g}", value); };
  add_row("server", options.base_url + report.endpoint_path);
  add_row("model", report.model);
  add_row("dataset", dataset_name(options.dataset));
  add_row("requests", fmt::format("{}", options.num_prompts));
  if (options.arrivals.ramp_up == RampUp::kNone) {
    add_row("request rate", rate(options.arrivals.request_rate));
  } else {
    add_row(
        "request rate",
        fmt::format("{:g} to {:g}", options.arrivals.ramp_up_start, options.arrivals.ramp_up_end));
  }
  add_row("burstiness", rate(options.arrivals.burstiness));
  add_row("concurrency",
          options.max_concurrency == 0 ? std::string("unlimited")
                                       : fmt::format("{}", options.max_concurrency));
  add_row("seed", fmt::format("{}", options.seed));
  add_row("duration", fmt::format("{:.2f} s", report.metrics.duration));
  add_row("input and output tokens",
          fmt::format("{} and {}", report.metrics.total_input, report.metrics.total_output));
  add_row("connections", fmt::format("{}", report.run.num_connections));
  add_row("this client",
          fmt::format("{:.1f} % of a core; sends {:.2f} ms late at the 99th percentile",
                      report.metrics.client_cpu * 100,
                      report.metrics.lateness.percentiles.back().second));
  page->add_raw("</table></div>\n");
}

void add_errors(const BenchmarkReport& report, Page* page) {
  std::map<std::string, size_t> errors;
  for (const RequestRecord& record : report.run.records) {
    const ErrorKind kind = record.answer.error_kind;
    if (kind == ErrorKind::kNone || kind == ErrorKind::kCancelled) continue;
    ++errors[fmt::format("{}: {}", error_kind_name(kind), record.answer.error)];
  }
  if (errors.empty()) return;
  page->add_raw("<h2>Errors</h2>\n<div class=\"card\"><table>\n");
  size_t shown = 0;
  for (const auto& [message, count] : errors) {
    if (++shown > kMaxErrors) break;
    page->add("<tr><td>{}</td><td class=\"text\">{}</td></tr>\n", count, html_escape(message));
  }
  page->add_raw("</table></div>\n");
}

}  // namespace

std::string html_report(const BenchmarkReport& report) {
  Page page;
  const std::string name = report.options.label.empty()
                               ? report.model
                               : fmt::format("{}, {}", report.options.label, report.model);
  char date[64];
  std::tm local{};
  localtime_r(&report.started_at, &local);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
  page.add(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n{}</head><body>\n",
      html_escape(name),
      kStyle);
  page.add("<h1>{}</h1>\n<p>atom bench serve, {}{}</p>\n",
           html_escape(name),
           date,
           report.run.interrupted ? ", interrupted" : "");
  add_tiles(report, &page);
  page.add_raw("<div class=\"plots\">\n");
  for (const MetricName& metric : metric_names()) {
    page.add("<div class=\"card\">{}</div>\n", distribution_plot(report, metric));
  }
  page.add("<div class=\"card\">{}</div>\n", concurrency_plot(report));
  page.add("<div class=\"card\">{}</div>\n", throughput_plot(report));
  page.add_raw("</div>\n");
  add_times(report, &page);
  page.add("<h2>Timeline</h2>\n<div class=\"card\">{}</div>\n", timeline(report));
  add_errors(report, &page);
  add_settings(report, &page);
  page.add_raw("</body></html>\n");
  return page.take();
}

}  // namespace atom::bench_serve
