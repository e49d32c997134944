// atom bench: latency and throughput on this machine, beside what the machine can do at most.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "cli/bench_breakdown.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/fetch_checkpoint.h"
#include "cli/follow_head.h"
#include "cli/json_output.h"
#include "cli/parse_values.h"
#include "cli/profile_run.h"
#include "cli/progress_bar.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kBenchDescription =
    "Measures made-up requests. latency runs --batch-size of them together, --num-iters times, or "
    "each of --shapes; throughput runs --num-prompts at once; roofline runs decodes of batch 1 and "
    "16 and a prefill of 512 tokens in turn; breakdown times each operator of a decode step of "
    "--batch-size sequences of --input-len tokens, or of the prefill where --output-len is 1, "
    "launched one by one. The read bandwidth and arithmetic peak of the device "
    "that computes are measured before, between and after, and each figure is judged against its "
    "neighbors; medians are shown. A GPU's peaks are those of its library for matrix "
    "multiplication.\n"
    "CHECKPOINT may hold config.json only, with --load-dummy.";

constexpr int32_t kMaxCount = 1 << 20;

struct BenchOptions {
  EngineConfig config;
  std::string mode = "latency";
  int32_t input_len = 128;
  int32_t output_len = 64;
  int32_t batch_size = 1;
  std::vector<BatchShape> shapes;  // empty: batch_size, input_len and output_len
  bool difference = false;
  std::string forced_text;
  double temperature = 0;
  int32_t num_prompts = 64;
  int32_t num_iters = 5;
  int32_t warmup = 1;
  std::string output_json;
  std::string output_trace;
};

bool is_mode(std::string_view name) {
  return name == "latency" || name == "throughput" || name == "roofline" || name == "breakdown";
}

std::vector<BatchShape> shapes_of(const BenchOptions& options) {
  if (!options.shapes.empty()) return options.shapes;
  return {{options.batch_size, options.input_len, options.output_len}};
}

std::vector<BenchMeasurement> measurements_for(const BenchOptions& options) {
  if (options.mode == "roofline") {
    return {{.name = "decode 1", .shape = {1, 32, 33}},
            {.name = "decode 16", .shape = {16, 32, 33}},
            {.name = "prefill 512", .shape = {1, 512, 1}}};
  }
  if (options.mode == "throughput") {
    return {{.name = options.mode,
             .shape = {options.num_prompts, options.input_len, options.output_len},
             .runs_at_once = false}};
  }
  std::vector<BenchMeasurement> measurements;
  for (const BatchShape& shape : shapes_of(options)) {
    measurements.push_back({.name = options.mode,
                            .shape = shape,
                            .by_difference = options.difference && shape.output_len > 1});
  }
  return measurements;
}

// What the requests need and the user did not choose.
void fit_config(const std::vector<BenchMeasurement>& measurements, EngineConfig* config) {
  int32_t length = 0;
  for (const BenchMeasurement& measurement : measurements) {
    const BatchShape& shape = measurement.shape;
    length = std::max(length, shape.input_len + shape.output_len);
    if (measurement.runs_at_once) {
      config->scheduler.max_num_seqs = std::max(config->scheduler.max_num_seqs, shape.batch);
    }
    config->scheduler.max_num_waiting = std::max(config->scheduler.max_num_waiting, shape.batch);
  }
  if (config->model.max_model_len == 0) config->model.max_model_len = length;
}

Result<BatchFigures> run_once(const BenchMeasurement& measurement,
                              const std::function<void(size_t)>& on_finished,
                              BenchSession* session) {
  const BatchShape& shape = measurement.shape;
  double prefill = 0;
  if (measurement.by_difference) {
    ASSIGN_OR_RETURN(const BatchFigures first, session->run({shape.batch, shape.input_len, 1}));
    prefill = first.duration;
  }
  ASSIGN_OR_RETURN(BatchFigures figures, session->run(shape, on_finished));
  if (measurement.by_difference) {
    figures.decode_step = (figures.duration - prefill) / (shape.output_len - 1);
  }
  return figures;
}

Result<BenchReport> measure(const BenchOptions& options,
                            std::vector<BenchMeasurement> measurements,
                            BenchSession* session) {
  BenchReport report;
  report.mode = options.mode;
  report.checkpoint = options.config.model.model;
  report.architecture = session->config().model.architecture;
  ASSIGN_OR_RETURN(const BuiltModel built, build_model(session->config(), session->device()));
  report.work = count_work(session->config(), built);
  report.machine =
      machine_text(session->device(), session->config().num_threads, session->num_cards());
  report.num_threads = session->config().num_threads;
  uint64_t num_requests = 0;
  for (const BenchMeasurement& measurement : measurements) num_requests += measurement.shape.batch;
  ProgressBar bar("measuring",
                  num_requests * static_cast<uint64_t>(options.warmup + options.num_iters),
                  ProgressUnit::kCount);
  const auto on_finished = [&](size_t) { bar.advance(1); };
  for (int32_t i = 0; i < options.warmup; ++i) {
    for (const BenchMeasurement& measurement : measurements) {
      RETURN_IF_ERROR(run_once(measurement, on_finished, session).status());
    }
  }
  report.roofs.push_back(session->measure_roofs());
  RETURN_IF_ERROR(start_profile(session->engine()));
  for (int32_t i = 0; i < options.num_iters; ++i) {
    for (BenchMeasurement& measurement : measurements) {
      ASSIGN_OR_RETURN(const BatchFigures figures, run_once(measurement, on_finished, session));
      const ops::Roofs before = report.roofs.back();
      report.roofs.push_back(session->measure_roofs());
      measurement.samples.push_back({figures, mean(before, report.roofs.back())});
    }
  }
  RETURN_IF_ERROR(finish_profile(session->engine()));
  report.measurements = std::move(measurements);
  return report;
}

int run_breakdown(const BenchOptions& options) {
  if (Status status = apply_log_flags(options.config); !status.ok()) return fail(status);
  EngineConfig config = options.config;
  if (Status status = fetch_checkpoint(config.model.load_dummy == DummyWeights::kNone
                                           ? hub::FileSet::kAll
                                           : hub::FileSet::kWithoutWeights,
                                       &config.model);
      !status.ok())
    return fail(status);
  const Result<BreakdownReport> report = break_down(config, shapes_of(options), options.num_iters);
  if (!report.ok()) return fail(report.status());
  if (!write_out(breakdown_text(*report))) return end_of_output();
  Status written;
  if (!options.output_json.empty()) {
    written = write_file(options.output_json, to_line(breakdown_json(*report)));
  }
  if (written.ok() && !options.output_trace.empty()) {
    written = write_file(options.output_trace, to_line(chrome_trace(*report)));
  }
  return written.ok() ? kExitOk : fail(written);
}

int run_bench(BenchOptions* options, std::vector<std::string> arguments) {
  if (!arguments.empty() && is_mode(arguments[0])) {
    options->mode = arguments[0];
    arguments.erase(arguments.begin());
  }
  for (const std::string& file : {options->output_json, options->output_trace}) {
    if (Status status = check_writable(file); !status.ok()) return fail(status);
  }
  EngineConfig& config = options->config;
  if (Status status = take_checkpoint(&arguments, &config); !status.ok()) {
    return fail_usage("bench", status);
  }
  if (Status status = refuse_arguments(arguments); !status.ok()) return fail_usage("bench", status);
  if (options->mode == "breakdown") {
    if (!options->forced_text.empty()) {
      return fail_usage("bench", invalid_argument("--forced-text: breakdown has no answers"));
    }
    if (options->temperature != 0) {
      return fail_usage("bench", invalid_argument("--temperature: breakdown has no answers"));
    }
    if (config.profile_dir.empty()) return run_breakdown(*options);
    return fail_usage("bench",
                      invalid_argument("breakdown has no engine to profile: --output-trace FILE "
                                       "writes its operators"));
  }
  if (!options->forced_text.empty()) config.model.skip_tokenizer_init = false;
  std::vector<BenchMeasurement> measurements = measurements_for(*options);
  fit_config(measurements, &config);
  if (!config.nodes.is_head()) return follow_head(config);
  const Result<std::unique_ptr<BenchSession>> session = BenchSession::create(config);
  if (!session.ok()) return fail(session.status());
  if (!options->forced_text.empty()) {
    const Status taken = (*session)->take_text(options->forced_text);
    if (!taken.ok()) return fail(taken);
  }
  (*session)->set_temperature(static_cast<float>(options->temperature));
  const Result<BenchReport> report = measure(*options, std::move(measurements), session->get());
  if (!report.ok()) return fail(report.status());
  if (!write_out(bench_table(*report))) return end_of_output();
  if (options->output_json.empty()) return kExitOk;
  const Status written = write_file(options->output_json, to_line(bench_json(*report)));
  return written.ok() ? kExitOk : fail(written);
}

Option temperature_option(double* target) {
  Option option;
  option.names = {"--temperature"};
  option.group = "Measurement";
  option.value_name = "NUMBER";
  option.range = "[0, 100]";
  option.default_value = "0";
  option.help =
      "Sampling temperature of answers. At 0 a model of made-up weights soon repeats a token, and "
      "its routers send all requests to the same experts; at 1 experts are chosen about evenly.";
  option.set = [target](const std::string& text) -> Status {
    const std::optional<double> value = parse_number<double>(text);
    if (!value || !(*value >= 0 && *value <= 100)) {
      return invalid_argument("--temperature '{}': a number in [0, 100] is expected", text);
    }
    *target = *value;
    return {};
  };
  return option;
}

// "8x1024x129,1x8192x1"
Result<std::vector<BatchShape>> parse_shapes(std::string_view text) {
  std::vector<BatchShape> shapes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    const size_t first = std::min(entry.find('x'), entry.size());
    const size_t second = std::min(entry.find('x', first + 1), entry.size());
    std::vector<std::optional<int32_t>> numbers = {parse_number<int32_t>(entry.substr(0, first))};
    if (second < entry.size()) {
      numbers.push_back(parse_number<int32_t>(entry.substr(first + 1, second - first - 1)));
      numbers.push_back(parse_number<int32_t>(entry.substr(second + 1)));
    }
    const auto is_count = [](const auto& number) {
      return number && *number >= 1 && *number <= kMaxCount;
    };
    if (numbers.size() != 3 || !std::ranges::all_of(numbers, is_count)) {
      return invalid_argument("--shapes: '{}' is not BATCHxINPUTxOUTPUT, such as 8x1024x129",
                              entry.substr(0, 100));
    }
    shapes.push_back({*numbers[0], *numbers[1], *numbers[2]});
    begin = end + 1;
  }
  return shapes;
}

Option shapes_option(std::vector<BatchShape>* shapes) {
  std::string unused;
  Option option = text_option("--shapes",
                              "Measurement",
                              "BATCHxINPUTxOUTPUT,...",
                              "What latency runs, one after the other, instead of --batch-size "
                              "requests of --input-len and --output-len.",
                              &unused);
  option.set = [shapes](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(*shapes, parse_shapes(text));
    return {};
  };
  return option;
}

Option mode_option(std::string* mode) {
  Option option = text_option("--mode",
                              "Measurement",
                              "latency|throughput|roofline|breakdown",
                              "What to measure; may also be written before CHECKPOINT.",
                              mode);
  option.names.push_back("--preset");
  option.default_value = *mode;
  option.set = [mode](const std::string& text) -> Status {
    if (!is_mode(text)) {
      return invalid_argument(
          "--mode is '{}'; expected one of latency|throughput|roofline|breakdown",
          text.substr(0, 100));
    }
    *mode = text;
    return {};
  };
  return option;
}

}  // namespace

Command make_bench_command() {
  const auto options = std::make_shared<BenchOptions>();
  // The model is measured, not the tokenizer, and no prompt is to be found in the cache.
  options->config.model.skip_tokenizer_init = true;
  options->config.cache.enable_prefix_caching = false;
  Command command;
  command.name = "bench";
  command.arguments = "[latency|throughput|roofline|breakdown] CHECKPOINT";
  command.summary = "latency and throughput on this machine";
  command.description = kBenchDescription;
  const auto count = [](const char* name, int32_t min, const char* help, int32_t* target) {
    return int_option(name, "Measurement", min, kMaxCount, help, target);
  };
  command.options = {
      mode_option(&options->mode),
      count("--input-len", 1, "Tokens of each prompt.", &options->input_len),
      count("--output-len", 1, "Tokens of each answer.", &options->output_len),
      count("--batch-size", 1, "Requests that latency runs together.", &options->batch_size),
      shapes_option(&options->shapes),
      switch_option(
          "--difference",
          "Measurement",
          "Take ms/token of latency from the difference to a run of the same prompts with "
          "answers of one token, instead of the time between tokens once all prompts are "
          "computed.",
          &options->difference),
      text_option("--forced-text",
                  "Measurement",
                  "FILE",
                  "Text that every request has instead of a made-up one: --input-len tokens of it "
                  "are the prompt, and those behind are the answer, whatever the model says, so "
                  "that drafts are right as often as they are about this text. Tokens are those of "
                  "--tokenizer, or of CHECKPOINT.",
                  &options->forced_text),
      temperature_option(&options->temperature),
      count("--num-prompts", 1, "Requests that throughput runs.", &options->num_prompts),
      count("--num-iters", 1, "Times that everything is measured.", &options->num_iters),
      count("--warmup", 0, "Times that it is run before.", &options->warmup),
      text_option("--output-json",
                  "Measurement",
                  "FILE",
                  "File for every figure, each sample and the work that a step is judged by.",
                  &options->output_json),
      text_option("--output-trace",
                  "Measurement",
                  "FILE",
                  "File for the operators that breakdown ran, as chrome://tracing reads it.",
                  &options->output_trace)};
  for (Option& option : engine_flags(kCommandBench, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_bench(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
