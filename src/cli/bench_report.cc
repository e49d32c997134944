#include "cli/bench_report.h"

#include <fmt/format.h>
#include <numeric>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/human.h"
#include "cli/table.h"
#include "cli/token_times.h"

namespace atom::cli {
namespace {

// Medians over the samples; nothing where a figure has no meaning.
struct LatencySummary {
  double first_token = 0;               // s
  double prefill_rate = 0;              // prompt tokens per second
  std::optional<double> step;           // s per token of a sequence
  double output_rate = 0;               // generated tokens per second, prefill included
  double overhead = 0;                  // s per step
  double model = 0;                     // s per step
  double idle = 0;                      // share of the duration
  std::optional<double> decode_share;   // of the bound
  std::optional<double> prefill_share;  // of the peak
};

double median_of(const BenchMeasurement& measurement,
                 const std::function<double(const BenchSample&)>& figure) {
  std::vector<double> values;
  for (const BenchSample& sample : measurement.samples) values.push_back(figure(sample));
  return median(std::move(values));
}

double decode_share(const BenchReport& report, const BatchShape& shape, const BenchSample& sample) {
  const int64_t context = shape.input_len + shape.output_len / 2;
  const StepWork work = decode_work(report.work, shape.batch, context);
  return least_seconds(work, sample.roofs, report.work.dtype) / sample.figures.decode_step;
}

// 0 where the peak was not measured.
double prefill_share(const BenchReport& report,
                     const BatchShape& shape,
                     const BenchSample& sample) {
  const StepWork work = prefill_work(report.work, shape.batch, shape.input_len);
  return least_compute_seconds(work, sample.roofs, report.work.dtype) /
         sample.figures.last_first_token;
}

LatencySummary summarize(const BenchReport& report, const BenchMeasurement& measurement) {
  const BatchShape& shape = measurement.shape;
  const double prompt_tokens = double(shape.batch) * shape.input_len;
  const double output_tokens = double(shape.batch) * shape.output_len;
  const auto over = [&](const std::function<double(const BenchSample&)>& figure) {
    return median_of(measurement, figure);
  };
  LatencySummary summary;
  summary.first_token = over([](const auto& s) { return s.figures.mean_first_token; });
  summary.prefill_rate =
      over([&](const auto& s) { return prompt_tokens / s.figures.last_first_token; });
  summary.output_rate = over([&](const auto& s) { return output_tokens / s.figures.duration; });
  summary.overhead = over([](const auto& s) { return s.figures.overhead_per_step; });
  summary.model = over([](const auto& s) { return s.figures.model_per_step; });
  summary.idle = over([](const auto& s) { return s.figures.idle_share; });
  const double step = over([&](const auto& s) {
    return measurement.runs_at_once ? s.figures.decode_step : s.figures.token_gap;
  });
  if (step > 0) {
    summary.step = step;
    if (measurement.runs_at_once) {
      summary.decode_share = over([&](const auto& s) { return decode_share(report, shape, s); });
    }
  }
  if (measurement.runs_at_once) {
    const double share = over([&](const auto& s) { return prefill_share(report, shape, s); });
    if (share > 0) summary.prefill_share = share;
  }
  return summary;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "-";
}

std::string flops_text(double flops) {
  if (flops == 0) return "unmeasured";
  return flops < 1e12 ? fmt::format("{:.1f} GFLOP/s", flops * 1e-9)
                      : fmt::format("{:.1f} TFLOP/s", flops * 1e-12);
}

OrderedJson optional_json(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson sample_json(const BenchSample& sample) {
  const BatchFigures& figures = sample.figures;
  return {{"duration", figures.duration},
          {"mean_time_to_first_token", figures.mean_first_token},
          {"prefill_duration", figures.last_first_token},
          {"decode_step", figures.decode_step},
          {"token_gap", figures.token_gap},
          {"num_steps", figures.num_steps},
          {"model_per_step", figures.model_per_step},
          {"engine_overhead_per_step", figures.overhead_per_step},
          {"device_idle_share", figures.idle_share},
          {"num_verifications", figures.num_verifications},
          {"num_draft_tokens", figures.num_draft_tokens},
          {"num_accepted_per_position", figures.num_accepted_at},
          {"roofs", roofs_json(sample.roofs)}};
}

OrderedJson work_json(const StepWork& work) {
  return {{"weight_bytes", work.weight_bytes},
          {"kv_bytes", work.kv_bytes},
          {"flops", work.flops},
          {"fp8_flops", work.fp8_flops}};
}

OrderedJson measurement_json(const BenchReport& report, const BenchMeasurement& measurement) {
  const BatchShape& shape = measurement.shape;
  const LatencySummary summary = summarize(report, measurement);
  const int64_t context = shape.input_len + shape.output_len / 2;
  OrderedJson json = {
      {"name", measurement.name},
      {"batch_size", shape.batch},
      {"input_len", shape.input_len},
      {"output_len", shape.output_len},
      {"time_to_first_token", summary.first_token},
      {"prefill_tokens_per_second", summary.prefill_rate},
      {"decode_step", optional_json(summary.step)},
      {"output_tokens_per_second", summary.output_rate},
      {"engine_overhead_per_step", summary.overhead},
      {"model_per_step", summary.model},
      {"device_idle_share", summary.idle},
      {"decode_share_of_bound", optional_json(summary.decode_share)},
      {"prefill_share_of_peak", optional_json(summary.prefill_share)},
      {"decode_work", work_json(decode_work(report.work, shape.batch, context))},
      {"prefill_work", work_json(prefill_work(report.work, shape.batch, shape.input_len))}};
  OrderedJson& samples = json["samples"] = OrderedJson::array();
  for (const BenchSample& sample : measurement.samples) samples.push_back(sample_json(sample));
  return json;
}

constexpr const char* kLegend =
    "\n"
    "first token    until an answer's first token, mean of the batch\n"
    "prefill tok/s  tokens of the prompts, until all of them have their first token\n"
    "ms/token       a step that gives each sequence its next token, once all prompts are "
    "computed;\n"
    "               of throughput the time between a sequence's tokens\n"
    "output tok/s   of all sequences, prefill included\n"
    "overhead/step  of a step, what the engine takes beside the model\n"
    "decode/bound   least time for a step by the machine's bandwidth and peak, of the time taken\n"
    "prefill/peak   least time for the prompts by the machine's peak, of the time taken\n"
    "All are medians over the repeats; - where a figure has no meaning.\n";

}  // namespace

std::string roofs_text(std::span<const ops::Roofs> measured) {
  const auto middle = [&](double ops::Roofs::*figure) {
    std::vector<double> values;
    for (const ops::Roofs& roofs : measured) values.push_back(roofs.*figure);
    return median(std::move(values));
  };
  std::string text = fmt::format("machine, median of {}: {:.1f} GB/s, ",
                                 measured.size(),
                                 middle(&ops::Roofs::read_bandwidth) * 1e-9);
  const double copy = middle(&ops::Roofs::copy_bandwidth);
  if (copy > 0) text += fmt::format("copies {:.1f} GB/s, ", copy * 1e-9);
  text += fmt::format("{} bf16, {} float32",
                      flops_text(middle(&ops::Roofs::bf16_flops)),
                      flops_text(middle(&ops::Roofs::f32_flops)));
  const double fp8 = middle(&ops::Roofs::fp8_flops);
  if (fp8 > 0) text += fmt::format(", {} fp8", flops_text(fp8));
  return text + "\n";
}

OrderedJson roofs_json(const ops::Roofs& roofs) {
  return {{"read_bandwidth", roofs.read_bandwidth},
          {"copy_bandwidth", roofs.copy_bandwidth},
          {"bf16_flops", roofs.bf16_flops},
          {"f32_flops", roofs.f32_flops},
          {"fp8_flops", roofs.fp8_flops}};
}

namespace {

// What became of the drafts, over all samples; "" where nothing was drafted.
std::string drafts_text(const BenchMeasurement& measurement) {
  uint64_t verifications = 0, drafts = 0;
  std::vector<uint64_t> accepted(kMaxSpeculativeTokens);
  for (const BenchSample& sample : measurement.samples) {
    verifications += sample.figures.num_verifications;
    drafts += sample.figures.num_draft_tokens;
    for (size_t i = 0; i < sample.figures.num_accepted_at.size(); ++i) {
      accepted[i] += sample.figures.num_accepted_at[i];
    }
  }
  if (verifications == 0) return "";
  const auto of_steps = [&](uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(verifications);
  };
  const uint64_t total = std::accumulate(accepted.begin(), accepted.end(), uint64_t{0});
  std::string text = fmt::format("drafts of {}: {} verified, {:.2f} tokens per step, accepted",
                                 measurement.name,
                                 drafts,
                                 1 + of_steps(total));
  for (size_t i = 0; i < accepted.size() && (i == 0 || accepted[i] > 0); ++i) {
    text += fmt::format(" {:.1f} %", of_steps(accepted[i]) * 100);
  }
  return text + " by place\n";
}

}  // namespace

std::string bench_table(const BenchReport& report) {
  const auto right = [](const char* header) { return Table::Column{header, Table::Align::kRight}; };
  Table table({{"run", Table::Align::kLeft},
               right("batch"),
               right("input"),
               right("output"),
               right("first token"),
               right("prefill tok/s"),
               right("ms/token"),
               right("output tok/s"),
               right("overhead/step"),
               right("decode/bound"),
               right("prefill/peak")});
  for (const BenchMeasurement& measurement : report.measurements) {
    const BatchShape& shape = measurement.shape;
    const LatencySummary summary = summarize(report, measurement);
    table.add_row({measurement.name,
                   fmt::format("{}", shape.batch),
                   fmt::format("{}", shape.input_len),
                   fmt::format("{}", shape.output_len),
                   human_duration(summary.first_token),
                   fmt::format("{:.1f}", summary.prefill_rate),
                   summary.step ? fmt::format("{:.2f}", *summary.step * 1e3) : "-",
                   fmt::format("{:.1f}", summary.output_rate),
                   human_duration(summary.overhead),
                   percent(summary.decode_share),
                   percent(summary.prefill_share)});
  }
  std::string drafts;
  for (const BenchMeasurement& measurement : report.measurements) {
    drafts += drafts_text(measurement);
  }
  return fmt::format("{} in {}, {}\n", report.architecture, report.work.types, report.machine) +
         roofs_text(report.roofs) + "\n" + table.to_string() + drafts + kLegend;
}

OrderedJson bench_json(const BenchReport& report) {
  OrderedJson json = {{"mode", report.mode},
                      {"checkpoint", report.checkpoint},
                      {"architecture", report.architecture},
                      {"dtype", dtype_name(report.work.dtype)},
                      {"types", report.work.types},
                      {"machine", report.machine},
                      {"num_threads", report.num_threads}};
  OrderedJson& roofs = json["roofs"] = OrderedJson::array();
  for (const ops::Roofs& entry : report.roofs) roofs.push_back(roofs_json(entry));
  OrderedJson& results = json["results"] = OrderedJson::array();
  for (const BenchMeasurement& measurement : report.measurements) {
    results.push_back(measurement_json(report, measurement));
  }
  return json;
}

}  // namespace atom::cli
