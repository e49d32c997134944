#include "linear_blocks_check.h"

#include "harness.h"
#include "linear_case.h"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/split_k/split_k_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16, kF8 = Element::kFloat8E4M3;

constexpr LinearCase kCases[] = {
    {"stored", kF8, kF8, kBF16, LinearEpilogue::kStore, false, false, kScaleRows},
    {"bias", kF8, kF8, kF16, LinearEpilogue::kStore, true, false, kScaleRows},
    {"half blocks", kF8, kF8, kBF16, LinearEpilogue::kStore, false, false, 64},
    {"residual", kF8, kF8, kBF16, LinearEpilogue::kAddResidual, false, false, kScaleRows},
    {"silu", kF8, kF8, kBF16, LinearEpilogue::kSiluAndMul, false, false, kScaleRows},
    {"silu bias", kF8, kF8, kBF16, LinearEpilogue::kSiluAndMul, true, false, 64},
};

constexpr LinearSkinnyTuning kSkinnyTunings[] = {
    {16, 1, 2}, {48, 1, 4}, {64, 2, 2}, {64, 2, 4}, {96, 2, 4}, {112, 1, 2}, {128, 2, 2}};

// Of one kernel and case.
class Check {
 public:
  // launch() on a null stream. The case is left out where it is not supported.
  template <typename Launch>
  void run(LinearOperands& operands, Launch&& launch) {
    operands.reset();
    const gpuError_t error = launch();
    if (error == ATOM_GPU(ErrorInvalidValue)) return;
    ATOM_BENCH_CHECK(error);
    ++num_runs_;
    const auto result = operands.result();
    const double worst = operands.error(result);
    if (!(worst <= worst_)) worst_ = worst;
    operands.reset();
    ATOM_BENCH_CHECK(launch());
    repeats_ = repeats_ && operands.result() == result;
  }

  int print(const char* kernel, const char* name, bool expected) const {
    const bool passed = worst_ <= 1 && repeats_ && (num_runs_ > 0) == expected;
    std::printf("%-6s %-12s: %s %d runs, max_err %.3f of allowed%s\n",
                kernel,
                name,
                passed ? "PASS" : "FAIL",
                num_runs_,
                worst_,
                repeats_ ? "" : ", does not repeat");
    std::fflush(stdout);
    return passed ? 0 : 1;
  }

 private:
  double worst_ = 0;
  int num_runs_ = 0;
  bool repeats_ = true;
};

int check_skinny(const LinearCase& c) {
  const int64_t shapes[][2] = {
      {32, 64}, {130, 192}, {1000, 1536}, {2008, 1104}, {6144, 4096}, {19200, 512}, {384, 7168}};
  Check check;
  for (const auto& shape : shapes) {
    const bool large = shape[0] * shape[1] > (4 << 20);
    for (const int64_t rows : {1, 5, 8, 9, 16, 24, 33, 48, 57, 64}) {
      if (large && rows % 16 != 0 && rows != 1) continue;
      LinearOperands o(c, shape[0], shape[1], rows);
      check.run(o, [&] { return launch_linear_skinny(o.params(), nullptr, nullptr); });
      for (const LinearSkinnyTuning& tuning : kSkinnyTunings) {
        check.run(o, [&] { return launch_linear_skinny(o.params(), &tuning, nullptr); });
      }
    }
  }
  return check.print("skinny", c.name, true);
}

// What all tiles and divisions give.
int check_split_k(const LinearCase& c) {
  const int64_t shapes[][2] = {{32, 512},
                               {130, 496},
                               {1000, 1536},
                               {2008, 2000},
                               {2048, 4096},
                               {5120, 2048},
                               {12288, 2048},
                               {384, 7168}};
  int num_multiprocessors = 0;
  ATOM_BENCH_CHECK(count_multiprocessors(&num_multiprocessors));
  Check check;
  for (const auto& shape : shapes) {
    const bool large = shape[0] * shape[1] > (4 << 20);
    for (const int64_t rows : {1, 5, 8, 9, 16, 24, 33, 48, 57, 64}) {
      if (large && rows % 16 != 0 && rows != 57) continue;
      LinearOperands o(c, shape[0], shape[1], rows);
      for (const LinearSplitKTuning& tuning : linear_split_k_tunings()) {
        check.run(o, [&] { return launch_linear_split_k(o.params(), tuning, nullptr); });
      }
    }
  }
  return check.print("split-k", c.name, c.epilogue == LinearEpilogue::kStore);
}

// What all tiles give; those with k whole give the same bits.
int check_tiles(Check& check, const LinearCase& c, LinearOperands& operands, bool all_tiles) {
  std::vector<uint8_t> first;
  int failed = 0;
  for (const LinearBlocksTuning& tuning : linear_blocks_tunings()) {
    if (!all_tiles && !is_for_many_rows(tuning)) continue;
    bool launched = false;
    check.run(operands, [&] {
      const gpuError_t error = launch_linear_blocks(operands.params(), &tuning, nullptr);
      launched = error == ATOM_GPU(Success);
      return error;
    });
    const bool expected = supports_linear_blocks(operands.params()) &&
                          takes_linear_blocks(linear_blocks_shape(operands.params()), tuning);
    if (launched != expected) {
      std::printf("blocks %s: FAIL tile %s is not there\n", c.name, name_of(tuning).c_str());
      ++failed;
    }
    if (!launched || tuning.parts > 1) continue;
    if (first.empty()) first = operands.result();
    if (operands.result() == first) continue;
    std::printf("blocks %s: FAIL tile %s has other bits\n", c.name, name_of(tuning).c_str());
    ++failed;
  }
  return failed;
}

constexpr int64_t kFewRows = 300;

int check_blocks(const LinearCase& c, int64_t max_rows) {
  const int64_t shapes[][2] = {
      {64, 64}, {200, 192}, {1152, 1552}, {2176, 1088}, {640, 7168}, {6144, 4096}};
  Check check;
  int failed = 0;
  for (const auto& shape : shapes) {
    for (const int64_t rows : {1, 65, 96, 128, 129, 192, 256, 300, 1000, 4100}) {
      const bool large = shape[0] * shape[1] > (4 << 20);
      if (rows > max_rows || (large && rows < 1000 && rows != 192)) continue;
      LinearOperands o(c, shape[0], shape[1], rows);
      failed += check_tiles(check, c, o, rows <= kFewRows);
    }
  }
  return failed + check.print("blocks", c.name, c.epilogue != LinearEpilogue::kAddResidual);
}

// The shapes that are timed with few rows.
int check_layers() {
  int failed = 0;
  for (const BlocksLayer& layer : kBlocksLayers) {
    if (layer.epilogue != LinearEpilogue::kStore) continue;
    Check check;
    for (const int64_t rows : {96, 256}) {
      LinearOperands o(kCases[0], layer.out_features, layer.in_features, rows);
      failed += check_tiles(check, kCases[0], o, true);
    }
    failed += check.print("blocks", layer.name, true);
  }
  return failed;
}

}  // namespace

int check_linears_in_blocks(bool few) {
  int failed = 0;
  for (const LinearCase& c : kCases) {
    if (!few) failed += check_skinny(c);
    failed += check_split_k(c);
    failed += check_blocks(c, few ? kFewRows : INT32_MAX);
  }
  failed += check_layers();
  std::printf("linear_blocks_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed;
}

}  // namespace atom::bench
