// atom doctor: what this machine offers, what atom will use of it, and what is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/env.h"
#include "base/human.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/doctor/collectives.h"
#include "cli/doctor/cpu_findings.h"
#include "cli/doctor/gpu_findings.h"
#include "cli/doctor/memory_findings.h"
#include "cli/doctor/system_findings.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "cli/style.h"
#include "ops/roofs/roofs.h"
#include "tensor/device_runtime.h"

namespace atom::cli {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Severity;

constexpr const char* kDoctorDescription =
    "Says what this machine offers, what atom will use of it and what is wrong, with advice. Looks "
    "and changes nothing. Exit code 1 when something keeps atom from serving.";

constexpr double kRoofSeconds = 1;
constexpr int32_t kMostRanks = 8;  // unless more are asked for

struct DoctorOptions {
  bool measure = false;
  bool collectives = false;
  int32_t num_ranks = 0;  // of the collectives; 0: one for each core, up to kMostRanks
  bool json = false;
  int32_t port = 8000;
};

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kNote:
      return "note";
    case Severity::kProblem:
      return "problem";
  }
  return "";
}

Findings examine(const DoctorOptions& options) {
  const doctor::SystemFiles files;
  Findings all;
  for (const Findings& part : {doctor::judge_cpu(doctor::read_cpu_facts(files)),
                               doctor::judge_memory(doctor::read_memory_facts(files)),
                               doctor::judge_gpu(doctor::read_gpu_facts(files)),
                               doctor::judge_system(doctor::read_system_facts(
                                   files, static_cast<uint16_t>(options.port), env().hf_hub_cache)),
                               doctor::list_versions()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

ops::Roofs measure() {
  ThreadPool pool(env().num_threads > 0 ? env().num_threads : num_usable_cores());
  return ops::measure_roofs(Stream(&pool), kRoofSeconds);
}

Findings roof_findings(const ops::Roofs& roofs) {
  const auto finding = [](const char* name, std::string value) {
    return Finding{"measured", name, Severity::kOk, std::move(value), ""};
  };
  return {finding("memory bandwidth", fmt::format("{:.1f} GB/s", roofs.read_bandwidth / 1e9)),
          finding("bfloat16", fmt::format("{:.0f} GFLOP/s", roofs.bf16_flops / 1e9)),
          finding("float32", fmt::format("{:.0f} GFLOP/s", roofs.f32_flops / 1e9))};
}

size_t count(const Findings& findings, Severity severity) {
  return static_cast<size_t>(std::ranges::count(findings, severity, &Finding::severity));
}

std::string severity_text(Severity severity, const Style& style) {
  const std::string padded = fmt::format("{:<8}", severity_name(severity));
  if (severity == Severity::kProblem) return style.red(padded);
  return severity == Severity::kNote ? style.yellow(padded) : style.green(padded);
}

std::string report_text(const Findings& findings, const Style& style) {
  size_t name_width = 0;
  for (const Finding& finding : findings) name_width = std::max(name_width, finding.name.size());
  std::string text;
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) {
      section = finding.section;
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", style.bold(section));
    }
    text += fmt::format("  {} {:<{}}  {}\n",
                        severity_text(finding.severity, style),
                        finding.name,
                        name_width,
                        printable(finding.value));
    if (!finding.advice.empty()) {
      text += fmt::format(
          "  {:8} {:<{}}  {}\n", "", "", name_width, style.dim("-> " + printable(finding.advice)));
    }
  }
  return text + fmt::format("\n{} problem(s), {} note(s)\n",
                            count(findings, Severity::kProblem),
                            count(findings, Severity::kNote));
}

// Measured collectives of a transport.
struct Collectives {
  std::string transport;
  std::string what;
  int32_t num_ranks = 0;
  std::vector<CollectiveTime> times;
};

int32_t count_cards() {
  const auto cards = device_facts(DeviceType::kCuda);
  return cards.ok() ? static_cast<int32_t>(cards->size()) : 0;
}

// Those of threads, and where there are several cards, theirs.
Result<std::vector<Collectives>> measure_collectives(const DoctorOptions& options) {
  std::vector<Collectives> all;
  if (!options.collectives) return all;
  const int32_t asked = options.num_ranks;
  Collectives local{"local", "", asked > 0 ? asked : num_usable_cores(), {}};
  if (asked == 0) local.num_ranks = std::clamp<int32_t>(local.num_ranks, 2, kMostRanks);
  local.what = fmt::format("{} ranks, threads on the CPU", local.num_ranks);
  ASSIGN_OR_RETURN(local.times, doctor::measure_local_collectives(local.num_ranks));
  all.push_back(std::move(local));
  Collectives cards{"cards", "", std::min(count_cards(), asked > 0 ? asked : kMostRanks), {}};
  if (cards.num_ranks < 2) return all;
  cards.what = fmt::format("{} GPUs", cards.num_ranks);
  ASSIGN_OR_RETURN(cards.times, doctor::measure_card_collectives(cards.num_ranks));
  all.push_back(std::move(cards));
  return all;
}

OrderedJson collectives_json(const Collectives& collectives) {
  OrderedJson list = OrderedJson::array();
  for (const CollectiveTime& time : collectives.times) {
    list.push_back({{"collective", collective_name(time.collective)},
                    {"bytes", time.bytes},
                    {"seconds", time.seconds},
                    {"bus_bandwidth", time.bus_bandwidth(collectives.num_ranks)}});
  }
  return {{"transport", collectives.transport},
          {"num_ranks", collectives.num_ranks},
          {"times", std::move(list)}};
}

OrderedJson report_json(const Findings& findings,
                        const std::optional<ops::Roofs>& roofs,
                        const std::vector<Collectives>& collectives) {
  OrderedJson list = OrderedJson::array();
  for (const Finding& finding : findings) {
    OrderedJson entry = {{"section", finding.section},
                         {"name", finding.name},
                         {"severity", severity_name(finding.severity)},
                         {"value", finding.value}};
    if (!finding.advice.empty()) entry["advice"] = finding.advice;
    list.push_back(std::move(entry));
  }
  OrderedJson json = {{"num_problems", count(findings, Severity::kProblem)},
                      {"num_notes", count(findings, Severity::kNote)},
                      {"findings", std::move(list)}};
  if (roofs) {
    json["measured"] = {{"read_bandwidth", roofs->read_bandwidth},
                        {"bf16_flops", roofs->bf16_flops},
                        {"f32_flops", roofs->f32_flops}};
  }
  for (const Collectives& measured : collectives) {
    const bool is_local = measured.transport == "local";
    json[is_local ? "collectives" : "card_collectives"] = collectives_json(measured);
  }
  return json;
}

int run_doctor(const DoctorOptions& options, const std::vector<std::string>& arguments) {
  if (Status status = refuse_arguments(arguments); !status.ok()) {
    return fail_usage("doctor", status);
  }
  if (Status status = apply_log_flags({}); !status.ok()) return fail(status);
  Findings findings = examine(options);
  std::optional<ops::Roofs> roofs;
  if (options.measure) {
    roofs = measure();
    const Findings measured = roof_findings(*roofs);
    findings.insert(findings.end(), measured.begin(), measured.end());
  }
  const Result<std::vector<Collectives>> collectives = measure_collectives(options);
  if (!collectives.ok()) return fail(collectives.status());
  std::string text;
  if (options.json) {
    text = to_line(report_json(findings, roofs, *collectives));
  } else {
    text = report_text(findings, Style::for_stream(stdout));
    for (const Collectives& measured : *collectives) {
      text += doctor::collectives_table(measured.times, measured.what, measured.num_ranks);
    }
  }
  if (!write_out(text)) return end_of_output();
  return count(findings, Severity::kProblem) == 0 ? kExitOk : kExitError;
}

}  // namespace

Command make_doctor_command() {
  const auto options = std::make_shared<DoctorOptions>();
  Command command;
  command.name = "doctor";
  command.summary = "what this machine offers, and what is wrong";
  command.description = kDoctorDescription;
  command.options = {
      switch_option("--measure",
                    "Output",
                    "Also measure memory bandwidth and arithmetic; takes some seconds.",
                    &options->measure),
      switch_option(
          "--collectives",
          "Output",
          "Also measure all-reduce, all-gather and all-to-all of ranks as threads, and of "
          "GPUs where there are several, over sizes.",
          &options->collectives),
      int_option("--collective-ranks",
                 "Output",
                 0,
                 64,
                 "Ranks of --collectives; 0: one for each core, 2 to 8, and for each GPU.",
                 &options->num_ranks),
      switch_option("--json", "Output", "One JSON object.", &options->json),
      int_option("--port",
                 "Output",
                 1,
                 65535,
                 "The port that is to be free for `atom serve`.",
                 &options->port)};
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_doctor(*options, arguments);
  };
  return command;
}

}  // namespace atom::cli
