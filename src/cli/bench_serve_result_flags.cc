// What `atom bench serve` reports, and where to.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "bench_serve/metric_names.h"
#include "cli/bench_serve_groups.h"
#include "cli/bench_serve_option_kinds.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr const char* kResultsGroup = "Results";

Status set_percentiles(const std::string& text, std::vector<double>* percentiles) {
  percentiles->clear();
  for (const std::string_view part : split_list(text, ',')) {
    const std::optional<double> value = parse_number<double>(part);
    if (!value || !(*value >= 0) || *value > 100 || percentiles->size() == 32) {
      return wrong_value("--metric-percentiles", text, "numbers in [0, 100], as 50,90,99");
    }
    percentiles->push_back(*value);
  }
  return {};
}

Status set_metrics(const std::string& text, std::vector<std::string>* metrics) {
  metrics->clear();
  for (const std::string_view part : split_list(text, ',')) {
    const auto names = metric_names();
    const bool known = std::any_of(
        names.begin(), names.end(), [&](const MetricName& metric) { return part == metric.key; });
    if (!known) return wrong_value("--percentile-metrics", part, "some of ttft,tpot,itl,e2el");
    metrics->emplace_back(part);
  }
  return {};
}

}  // namespace

Status add_goodput(const std::string& text, Goodput* goodput) {
  for (const std::string_view pair : split_list(text, ',')) {
    const size_t colon = std::min(pair.find(':'), pair.size());
    const std::string_view name = pair.substr(0, colon);
    const auto limit = parse_number<double>(pair.substr(std::min(colon + 1, pair.size())));
    std::optional<double>* target = nullptr;
    if (name == "ttft") target = &goodput->ttft;
    if (name == "tpot") target = &goodput->tpot;
    if (name == "e2el" || name == "e2e") target = &goodput->e2el;
    if (target == nullptr || !limit || !(*limit >= 0)) {
      return wrong_value("--goodput", pair, "ttft:MS, tpot:MS or e2el:MS");
    }
    *target = *limit;
  }
  return {};
}

void add_result_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  Option goodput = with_setter(
      "--goodput",
      kResultsGroup,
      "METRIC:MS",
      "Counts requests within all these limits, of ttft, tpot and e2el in milliseconds, as "
      "ttft:200 tpot:50.",
      [=](const std::string& text) { return add_goodput(text, &benchmark->metrics.goodput); });
  goodput.repeatable = true;
  options->push_back(std::move(goodput));
  Option metrics =
      with_setter("--percentile-metrics",
                  kResultsGroup,
                  "LIST",
                  "Metrics that are reported.",
                  [=](const std::string& text) { return set_metrics(text, &flags->json.metrics); });
  options->push_back(with_default(std::move(metrics), "ttft,tpot,itl,e2el"));
  Option percentiles = with_setter("--metric-percentiles",
                                   kResultsGroup,
                                   "LIST",
                                   "Their percentiles.",
                                   [=](const std::string& text) {
                                     return set_percentiles(text, &benchmark->metrics.percentiles);
                                   });
  options->push_back(with_default(std::move(percentiles), "50,90,95,99"));
  Option save = text_option("--save-result",
                            kResultsGroup,
                            "FILE",
                            "File for all figures as JSON, under vLLM's names; without FILE it is "
                            "named by --result-filename, or after model and time.",
                            &flags->save_result);
  save.implicit_value = kNamedLater;
  options->push_back(std::move(save));
  options->push_back(text_option(
      "--result-filename", kResultsGroup, "FILE", "The same.", &flags->result_filename));
  options->push_back(text_option("--result-dir",
                                 kResultsGroup,
                                 "FOLDER",
                                 "Where that file goes if its name is no path from the root.",
                                 &flags->result_dir));
  options->push_back(switch_option(
      "--save-detailed", kResultsGroup, "The JSON gets every request too.", &flags->json.detailed));
  options->push_back(text_option("--html",
                                 kResultsGroup,
                                 "FILE",
                                 "File for a report with plots, which needs nothing else.",
                                 &flags->html));
  options->push_back(
      text_option("--label", kResultsGroup, "TEXT", "Name of the run in both.", &benchmark->label));
  options->push_back(with_name(
      switch_option("--no-progress", kResultsGroup, "No line of progress.", &flags->no_progress),
      "--disable-tqdm"));
}

}  // namespace atom::cli
