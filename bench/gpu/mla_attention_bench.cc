// Checks and times latent attention for Hopper.
//
// usage: mla_attention_bench [check [CASE]|time [WORDS]]
// WORDS: only of shapes whose names have them.
//
// Checks compare single rows with sums in double, and all rows with the plain kernel. Timings are
// medians of recorded chains of calls, whose caches take turns; rates are those of the operations
// and bytes that the step has to do at least.
#include <cmath>
#include <cstring>
#include <string_view>

#include "mla_case.h"
#include "ops/mla_attention/sm90/mla_sm90.h"

namespace atom::bench {
namespace {

using ops::MlaAttentionArgs;

constexpr int kRank = 512;

class Runner {
 public:
  explicit Runner(const MlaAttentionArgs& args, const ops::MlaSm90Tuning& tuning = {})
      : tuning_(tuning),
        workspace_(static_cast<int64_t>(ops::mla_attention_sm90_workspace_size(args, tuning)) +
                   16) {
    if (!ops::supports_mla_attention_sm90(args)) {
      std::printf("mla_attention_sm90 does not support the case\n");
      std::exit(1);
    }
  }
  void run(const MlaAttentionArgs& args, gpuStream_t stream) const {
    ops::mla_attention_sm90(args, workspace_.data(), stream, tuning_);
  }

 private:
  ops::MlaSm90Tuning tuning_;
  Buffer workspace_;
};

// ---- checks ------------------------------------------------------------------------------------

double value_at(const std::vector<uint16_t>& out, int64_t row, int d) {
  return element_value(Element::kBFloat16, out.data(), row * kRank + d);
}

// ||a - b|| / ||b|| of rows; rows of zeros must be zeros.
struct RowDistance {
  double error = 0, norm = 0;
  void see(double got, double expected) {
    error += (got - expected) * (got - expected);
    norm += expected * expected;
  }
  double value() const { return norm == 0 ? (error == 0 ? 0 : 1e9) : std::sqrt(error / norm); }
};

// Weights and results are rounded to 8 bits, which over a row gives about 3e-3.
constexpr double kAllowed = 6e-3;

int check(const MlaShape& shape) {
  MlaProblem problem(shape, 1, 11);
  const MlaAttentionArgs args = problem.args();
  const Runner runner(args);
  problem.poison();
  runner.run(args, nullptr);
  const auto got = problem.out();
  runner.run(args, nullptr);
  const auto again = problem.out();
  problem.poison();
  ops::mla_attention_cuda(args, nullptr);
  const auto plain = problem.out();
  const int64_t num_rows = shape.num_tokens() * shape.num_heads;
  Verdict against_double, against_plain;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t row = i * (num_rows - 1) / 8;
    const auto expected = problem.expected(row / shape.num_heads, row % shape.num_heads);
    RowDistance distance;
    for (int d = 0; d < kRank; ++d) distance.see(value_at(got, row, d), expected[d]);
    against_double.see(distance.value(), 0, kAllowed);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    RowDistance distance;
    for (int d = 0; d < kRank; ++d) distance.see(value_at(got, row, d), value_at(plain, row, d));
    against_plain.see(distance.value(), 0, kAllowed);
  }
  int failed = against_double.print((shape.name + ", double").c_str());
  failed += against_plain.print((shape.name + ", plain kernel").c_str());
  if (std::memcmp(got.data(), again.data(), num_rows * kRank * 2) != 0) {
    std::printf("%s does not repeat: FAIL\n", shape.name.c_str());
    ++failed;
  }
  std::fflush(stdout);
  return failed;
}

std::vector<MlaShape> checked_shapes() {
  std::vector<MlaShape> shapes;
  const auto add = [&](const char* name,
                       int heads,
                       int block_size,
                       int top_k,
                       std::vector<int> queries,
                       std::vector<int> lens) {
    MlaShape shape;
    shape.name = name;
    shape.num_heads = heads;
    shape.block_size = block_size;
    shape.top_k = top_k;
    shape.num_queries = std::move(queries);
    shape.seq_lens = std::move(lens);
    shapes.push_back(shape);
    shape.float8 = true;
    shape.name += " fp8";
    shapes.push_back(shape);
  };
  add("one key", 64, 64, 0, {1}, {1});
  add("one tile", 64, 64, 0, {1}, {64});
  add("two tiles", 128, 16, 0, {1}, {128});
  add("odd tiles", 128, 64, 0, {1}, {150});
  add("split", 128, 64, 0, {1}, {9000});
  add("ragged", 128, 16, 0, {1, 1, 1, 1, 1}, {77, 4000, 1, 640, 2049});
  add("two queries", 128, 64, 0, {2, 2, 2}, {65, 700, 1500});
  add("16 heads", 16, 16, 0, {1, 3, 4, 1}, {100, 63, 2000, 900});
  add("20 heads, blocks of 7", 20, 7, 0, {5, 1, 2}, {5, 300, 1201});
  add("prompt", 128, 64, 0, {300, 40, 1}, {300, 1000, 500});
  add("long prompt", 128, 64, 0, {900}, {1300});
  add("sparse", 128, 64, 512, {1, 2, 1}, {3000, 700, 90});
  add("sparse prompt", 64, 16, 200, {300, 1}, {900, 150});
  return shapes;
}

// ---- timing ------------------------------------------------------------------------------------

void time_shape(const MlaShape& shape, const Roofs& roofs, const ops::MlaSm90Tuning& tuning = {}) {
  const int sets = sets_beyond_caches(shape.bytes());
  const MlaProblem problem(shape, sets, 5);
  const MlaAttentionArgs first = problem.args();
  const Runner runner(first, tuning);
  const bool large = shape.flops() > 2e12;
  const double us = time_call(
      [&](gpuStream_t stream, int set) { runner.run(problem.args(set), stream); }, large, sets);
  const double rate = static_cast<double>(shape.bytes()) / us * 1e-6;
  std::printf("mla %-34s %9.1f us %6.1f TFLOP/s %6.3f TB/s %5.1f %% of copy\n",
              (shape.name + (shape.float8 ? " fp8" : "")).c_str(),
              us,
              shape.flops() / us * 1e-6,
              rate,
              100 * rate * 1e12 / roofs.copy);
  std::fflush(stdout);
}

void time_all(const std::string& words) {
  const Roofs roofs = measure_roofs();
  const auto is_wanted = [&](const MlaShape& shape) {
    return shape.name.find(words) != std::string::npos;
  };
  const auto both = [&](MlaShape shape, int heads, int top_k = 0) {
    if (!is_wanted(shape)) return;
    shape.num_heads = heads;
    shape.top_k = top_k;
    time_shape(shape, roofs);
    shape.float8 = true;
    time_shape(shape, roofs);
  };
  both(equal_sequences("64 x 4k, 128 heads", 64, 1, 4096), 128);
  both(equal_sequences("64 x 4k, 64 heads", 64, 1, 4096), 64);
  both(equal_sequences("64 x 4k, 16 heads", 64, 1, 4096), 16);
  both(equal_sequences("32 x 4k, 2 queries, 128 heads", 32, 2, 4096), 128);
  both(equal_sequences("256 x 1k, 128 heads", 256, 1, 1024), 128);
  both(equal_sequences("1 x 1k, 128 heads", 1, 1, 1024), 128);
  both(equal_sequences("1 x 16k, 128 heads", 1, 1, 16384), 128);
  both(equal_sequences("1 x 128k, 128 heads", 1, 1, 131072), 128);
  both(equal_sequences("1 x 128k, 16 heads", 1, 1, 131072), 16);
  both(equal_sequences("64 x 2048 of 16k, 128 heads", 64, 1, 16384), 128, 2048);
  both(equal_sequences("64 x 2048 of 16k, 64 heads", 64, 1, 16384), 64, 2048);
  both(equal_sequences("1 x 2048 of 128k, 128 heads", 1, 1, 131072), 128, 2048);
  MlaShape prompt = equal_sequences("prompt of 8k, 128 heads", 1, 8192, 8192);
  if (is_wanted(prompt)) time_shape(prompt, roofs);
  prompt = equal_sequences("prompt of 8k, 16 heads", 1, 8192, 8192);
  prompt.num_heads = 16;
  if (is_wanted(prompt)) time_shape(prompt, roofs);
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  const int only = argc > 2 ? std::atoi(argv[2]) : -1;
  int failed = 0;
  if (mode != "time") {
    const auto shapes = checked_shapes();
    for (int i = 0; i < static_cast<int>(shapes.size()); ++i) {
      if (only < 0 || only == i) failed += check(shapes[i]);
    }
    std::printf("mla_attention_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") time_all(argc > 2 ? argv[2] : "");
  return failed == 0 ? 0 : 1;
}
