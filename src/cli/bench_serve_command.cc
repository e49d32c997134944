// atom bench serve: the load generator for any server that speaks OpenAI's protocol.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_text.h"
#include "bench_serve/benchmark.h"
#include "bench_serve/html_report.h"
#include "bench_serve/result_json.h"
#include "cli/bench_serve_flags.h"
#include "cli/bench_serve_progress.h"
#include "cli/bench_serve_report.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/report.h"
#include "cli/style.h"

namespace atom::cli {
namespace {

constexpr const char* kBenchServeDescription =
    "Sends requests to a server (atom, vLLM, SGLang, llama.cpp, ...) at times fixed beforehand and "
    "reports what they took. Without options: 100 made-up prompts at once to "
    "http://127.0.0.1:8000. Options are named as those of vLLM's bench serve. Ctrl-C ends the run "
    "and reports what there is. docs/benchmarking.md says what each figure means.";

Status write_files(const bench_serve::BenchmarkReport& report, const BenchServeFlags& flags) {
  if (!flags.save_result.empty()) {
    const OrderedJson json = bench_serve::result_json(report, flags.json);
    const std::string text = json_text(json, 2);
    RETURN_IF_ERROR(write_file(flags.save_result, text + "\n"));
  }
  if (flags.html.empty()) return {};
  return write_file(flags.html, bench_serve::html_report(report));
}

int run_bench_serve(const std::vector<std::string>& arguments, BenchServeFlags* flags) {
  if (Status status = finish_bench_serve_flags(arguments, flags); !status.ok()) {
    return fail_usage("bench serve", status);
  }
  for (const std::string& file : {flags->save_result, flags->html}) {
    if (Status status = check_writable(file); !status.ok()) return fail(status);
  }
  const Interrupts interrupts;
  flags->benchmark.stop_fd = interrupts.fd();
  BenchServeProgress progress(!flags->no_progress);
  bench_serve::BenchmarkHooks hooks;
  hooks.on_note = [](const std::string& line) { note(printable(line)); };
  hooks.on_progress = [&](const bench_serve::LiveFigures& figures) { progress.show(figures); };
  const Result<bench_serve::BenchmarkReport> report =
      bench_serve::run_benchmark(flags->benchmark, hooks);
  progress.finish();
  if (!report.ok()) {
    (void)fail(report.status());
    return report.status().code() == StatusCode::kAborted ? kExitInterrupted : kExitError;
  }
  const Style style = Style::for_stream(stderr);
  for (const std::string& line : bench_serve_doubts(*report)) {
    fmt::print(stderr, "{} {}\n", style.yellow("warning:"), printable(line));
  }
  if (!write_out(bench_serve_tables(*report, flags->json.metrics))) return end_of_output();
  if (Status status = write_files(*report, *flags); !status.ok()) return fail(status);
  if (report->run.interrupted) return kExitInterrupted;
  return report->metrics.completed > 0 ? kExitOk : kExitError;
}

}  // namespace

Command make_bench_serve_command() {
  const auto flags = std::make_shared<BenchServeFlags>();
  Command command;
  command.name = "bench serve";
  command.summary = "load on a server, and how it answers";
  command.description = kBenchServeDescription;
  command.options = bench_serve_options(flags.get());
  command.run = [flags](const std::vector<std::string>& arguments) {
    return run_bench_serve(arguments, flags.get());
  };
  return command;
}

}  // namespace atom::cli
