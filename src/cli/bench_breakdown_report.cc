#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/human.h"
#include "cli/bench_breakdown.h"
#include "cli/bench_report.h"
#include "cli/table.h"

namespace atom::cli {
namespace {

std::string rate_text(double per_second, double unit) {
  return per_second > 0 ? fmt::format("{:.2f}", per_second / unit) : "-";
}

double recorded_share(const StepBreakdown& step, const BreakdownReport& report) {
  if (step.recorded_seconds == 0) return 0;
  return least_seconds(step.work, report.roofs, report.dtype) / step.recorded_seconds;
}

// "; recorded 2.76 ms, 61 % of its roof, 412 launches, 8.6 a layer", those before and behind the
// layers among them.
std::string recorded_text(const StepBreakdown& step, const BreakdownReport& report) {
  if (step.num_launches == 0) return "";
  return fmt::format("; recorded {:.3f} ms, {:.0f} % of its roof, {} launches, {:.1f} a layer",
                     step.recorded_seconds * 1e3,
                     recorded_share(step, report) * 100,
                     step.num_launches,
                     static_cast<double>(step.num_launches) / report.num_layers);
}

// "experts of a layer: 39.8 of 128 chosen (41.2 if evenly), by 1.6 tokens each, 5.1 at most".
std::string experts_text(const StepBreakdown& step, const BreakdownReport& report) {
  const ExpertLoad& load = step.experts;
  if (load.num_layers == 0) return "";
  return fmt::format(
      "experts of a layer: {:.1f} of {} chosen ({:.1f} if evenly), by {:.1f} tokens each, {:.1f} "
      "at most\n",
      load.num_chosen,
      report.num_experts,
      step.evenly_chosen,
      load.tokens_per_chosen(),
      load.largest);
}

OrderedJson experts_json(const StepBreakdown& step, const BreakdownReport& report) {
  const ExpertLoad& load = step.experts;
  if (load.num_layers == 0) return nullptr;
  return {{"num_experts", report.num_experts},
          {"chosen", load.num_chosen},
          {"chosen_if_evenly", step.evenly_chosen},
          {"tokens_per_chosen", load.tokens_per_chosen()},
          {"largest", load.largest}};
}

std::string step_table(const StepBreakdown& step, const ops::Roofs& roofs, DType dtype) {
  const auto right = [](const char* header) { return Table::Column{header, Table::Align::kRight}; };
  Table table({{"operator", Table::Align::kLeft},
               {"variant", Table::Align::kLeft},
               right("calls"),
               right("us/call"),
               right("ms"),
               right("% of step"),
               right("MB/call"),
               right("GB/s"),
               right("TFLOP/s"),
               right("% of roof")});
  for (const OperatorTotal& total : step.operators) {
    const double share = share_of_roof(total, roofs, dtype);
    table.add_row({total.op,
                   total.variant,
                   fmt::format("{}", total.num_calls),
                   fmt::format("{:.1f}", total.seconds * 1e6 / total.num_calls),
                   fmt::format("{:.3f}", total.seconds * 1e3),
                   fmt::format("{:.1f}", total.seconds / step.seconds * 100),
                   fmt::format("{:.2f}", double(total.work.bytes) / total.num_calls * 1e-6),
                   rate_text(double(total.work.bytes) / total.seconds, 1e9),
                   rate_text(double(total.work.flops) / total.seconds, 1e12),
                   share > 0 ? fmt::format("{:.1f}", share * 100) : "-"});
  }
  return table.to_string();
}

}  // namespace

std::string breakdown_text(const BreakdownReport& report) {
  std::string text = fmt::format("{}, {}\n", report.model, report.machine) +
                     roofs_text(std::span(&report.roofs, 1));
  for (const StepBreakdown& step : report.steps) {
    text += fmt::format("\n{}: {} in operators{}\n",
                        step.name,
                        human_duration(step.seconds),
                        recorded_text(step, report));
    text += experts_text(step, report);
    text += step_table(step, report.roofs, report.dtype);
  }
  return text;
}

OrderedJson breakdown_json(const BreakdownReport& report) {
  OrderedJson steps = OrderedJson::array();
  for (const StepBreakdown& step : report.steps) {
    OrderedJson operators = OrderedJson::array();
    for (const OperatorTotal& total : step.operators) {
      operators.push_back({{"operator", total.op},
                           {"variant", total.variant},
                           {"calls", total.num_calls},
                           {"seconds", total.seconds},
                           {"bytes", total.work.bytes},
                           {"flops", total.work.flops},
                           {"share_of_roof", share_of_roof(total, report.roofs, report.dtype)}});
    }
    steps.push_back({{"name", step.name},
                     {"seconds", step.seconds},
                     {"recorded_seconds", step.recorded_seconds},
                     {"recorded_share_of_roof", recorded_share(step, report)},
                     {"launches", step.num_launches},
                     {"experts", experts_json(step, report)},
                     {"operators", std::move(operators)}});
  }
  return {{"mode", "breakdown"},
          {"model", report.model},
          {"machine", report.machine},
          {"layers", report.num_layers},
          {"roofs", roofs_json(report.roofs)},
          {"steps", std::move(steps)}};
}

OrderedJson chrome_trace(const BreakdownReport& report) {
  OrderedJson events = OrderedJson::array();
  const auto add = [&](std::string_view name, int thread, double begin, double seconds) {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", thread},
                      {"ts", begin * 1e6},
                      {"dur", seconds * 1e6}});
  };
  double begin = 0;
  for (const StepBreakdown& step : report.steps) {
    add(step.name, 1, begin, step.seconds);
    for (const OperatorRun& run : step.runs) {
      add(run.op, 2, begin + run.begin, run.seconds);
      events.back()["args"] = {
          {"variant", run.variant}, {"bytes", run.work.bytes}, {"flops", run.work.flops}};
    }
    begin += step.seconds * 1.1;  // steps apart
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace atom::cli
