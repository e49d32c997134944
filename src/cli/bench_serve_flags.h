// The options of `atom bench serve`, under vLLM's names where it has them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench_serve/benchmark.h"
#include "bench_serve/result_json.h"
#include "cli/option.h"

namespace atom::cli {

struct BenchServeFlags {
  bench_serve::BenchmarkOptions benchmark;
  bench_serve::ResultJsonOptions json;
  std::string host;
  int32_t port = 8000;
  bool has_base_url = false;
  std::string arrival = "poisson";
  std::string save_result;  // file
  std::string result_filename;
  std::string result_dir;
  std::string html;  // file
  bool no_progress = false;
};

// `flags` outlives the options.
std::vector<Option> bench_serve_options(BenchServeFlags* flags);

// What depends on several options. `arguments` are what is no option: more of --goodput's pairs.
Status finish_bench_serve_flags(const std::vector<std::string>& arguments, BenchServeFlags* flags);

}  // namespace atom::cli
