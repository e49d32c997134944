#include "cli/bench_serve_flags.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "base/env.h"
#include "cli/bench_serve_groups.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

// Where the result goes, of what the three options say.
void name_result_file(BenchServeFlags* flags) {
  std::string& file = flags->save_result;
  if (file.empty() || file == kNamedLater) {
    const bool wants_file = !file.empty();
    file = flags->result_filename;
    if (file.empty() && wants_file) {
      file = fmt::format("atom-{:%Y%m%d-%H%M%S}.json", fmt::gmtime(std::time(nullptr)));
    }
  }
  if (!file.empty() && !file.starts_with('/') && !flags->result_dir.empty()) {
    file = flags->result_dir + "/" + file;
  }
}

Status check_arrivals(BenchServeFlags* flags) {
  ArrivalOptions& arrivals = flags->benchmark.arrivals;
  const bool has_burst_size = arrivals.burst_size > 0;
  if (flags->arrival == "burst") {
    if (!has_burst_size) arrivals.burst_size = 10;
    arrivals.burstiness = kUnlimited;
  } else if (has_burst_size) {
    return invalid_argument("--burst-size needs --arrival burst");
  } else {
    arrivals.burst_size = 1;
  }
  if (flags->arrival == "constant") arrivals.burstiness = kUnlimited;
  const bool has_ends = arrivals.ramp_up_start > 0 || arrivals.ramp_up_end > 0;
  if (arrivals.ramp_up == RampUp::kNone) {
    if (has_ends) return invalid_argument("the ends of a ramp need --ramp-up-strategy");
    return {};
  }
  if (!std::isinf(arrivals.request_rate)) {
    return invalid_argument("--ramp-up-strategy takes the place of --request-rate; set one");
  }
  if (arrivals.ramp_up_end <= 0) {
    return invalid_argument("--ramp-up-strategy needs --ramp-up-end-rps above 0");
  }
  if (arrivals.ramp_up == RampUp::kExponential && arrivals.ramp_up_start <= 0) {
    return invalid_argument("an exponential ramp needs --ramp-up-start-rps above 0");
  }
  return {};
}

}  // namespace

std::vector<Option> bench_serve_options(BenchServeFlags* flags) {
  // Zero until set, so that a size without its arrival is seen.
  flags->benchmark.arrivals.burst_size = 0;
  std::vector<Option> options;
  add_server_options(flags, &options);
  add_load_options(flags, &options);
  add_request_options(flags, &options);
  add_result_options(flags, &options);
  return options;
}

Status finish_bench_serve_flags(const std::vector<std::string>& arguments, BenchServeFlags* flags) {
  BenchmarkOptions& benchmark = flags->benchmark;
  for (const std::string& argument : arguments) {
    // vLLM takes several pairs behind one --goodput.
    if (!benchmark.metrics.goodput.any() || argument.find(':') == std::string::npos) {
      return invalid_argument("unexpected argument '{}'; the server is named by --base-url",
                              argument.substr(0, 100));
    }
    RETURN_IF_ERROR(add_goodput(argument, &benchmark.metrics.goodput));
  }
  if (!flags->has_base_url) {
    const std::string host = flags->host.empty() ? "127.0.0.1" : flags->host;
    const bool is_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
    benchmark.base_url =
        fmt::format(fmt::runtime(is_ipv6 ? "http://[{}]:{}" : "http://{}:{}"), host, flags->port);
  } else if (!flags->host.empty()) {
    return invalid_argument("--host and --base-url both name the server; set one");
  }
  if (benchmark.api_key.empty()) benchmark.api_key = env().openai_api_key;
  name_result_file(flags);
  const bool needs_file =
      benchmark.dataset == Dataset::kShareGpt || benchmark.dataset == Dataset::kCustom;
  const char* dataset = dataset_name(benchmark.dataset);
  if (needs_file && benchmark.dataset_path.empty()) {
    return invalid_argument("--dataset {} needs --dataset-path FILE", dataset);
  }
  if (!needs_file && !benchmark.dataset_path.empty()) {
    return invalid_argument("--dataset {} takes no --dataset-path", dataset);
  }
  return check_arrivals(flags);
}

}  // namespace atom::cli
