// The live line of `atom bench serve` on a terminal; nothing is written elsewhere. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "bench_serve/load_generator.h"

namespace atom::cli {

// Rates are those since `before`.
std::string render_load(const bench_serve::LiveFigures& before,
                        const bench_serve::LiveFigures& now,
                        int width);

class BenchServeProgress {
 public:
  explicit BenchServeProgress(bool enabled, std::FILE* stream = stderr);
  ~BenchServeProgress() { finish(); }
  BenchServeProgress(const BenchServeProgress&) = delete;
  BenchServeProgress& operator=(const BenchServeProgress&) = delete;

  void show(const bench_serve::LiveFigures& figures);
  // Removes the line.
  void finish();

 private:
  std::FILE* const stream_;
  const bool visible_;
  bool shown_ = false;
  bench_serve::LiveFigures before_;  // about a second ago
  bench_serve::LiveFigures last_;
};

}  // namespace atom::cli
