// The options of `atom bench serve` by the heading that --help shows them under.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench_serve/metrics.h"
#include "cli/bench_serve_flags.h"
#include "cli/option.h"

namespace atom::cli {

// What --save-result holds when it was given without a file.
inline constexpr const char* kNamedLater = "auto";

// Each adds those of one heading; `flags` outlives them.
void add_server_options(BenchServeFlags* flags, std::vector<Option>* options);
void add_load_options(BenchServeFlags* flags, std::vector<Option>* options);
void add_request_options(BenchServeFlags* flags, std::vector<Option>* options);
void add_result_options(BenchServeFlags* flags, std::vector<Option>* options);

// Adds the limits of a --goodput: METRIC:MS, several with commas between them.
Status add_goodput(const std::string& text, bench_serve::Goodput* goodput);

}  // namespace atom::cli
