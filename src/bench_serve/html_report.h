// A report as one HTML page with plots, in the colors that the reader's system prefers. It loads
// nothing and runs no script.
#pragma once

#include <string>

#include "bench_serve/benchmark.h"

namespace atom::bench_serve {

std::string html_report(const BenchmarkReport& report);

}  // namespace atom::bench_serve
