// Checks and times the linear for many rows on Hopper.
//
// usage: linear_wgmma_bench [check|time]
//
// Checks compare with sums in double over random shapes, and bit by bit with cuBLASLt's algorithms
// of one order of sums. Timings are of the linears of an 8B layer, in turn with the best of
// cuBLASLt's algorithms and, with SiLU, the activation's kernel.
#include <algorithm>
#include <string>

#include "harness.h"
#include "linear_case.h"
#include "ops/linear/library/gemm_library.h"
#include "ops/linear/library/gemm_plans.h"
#include "ops/linear/wgmma/wgmma_cuda.h"
#include "ops/silu_and_mul/silu_and_mul_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16;

// ---- checks ------------------------------------------------------------------------------------

constexpr LinearCase kCases[] = {
    {"bf16", kBF16, kBF16, kBF16, LinearEpilogue::kStore, false, false},
    {"bf16 bias", kBF16, kBF16, kBF16, LinearEpilogue::kStore, true, false},
    {"bf16 silu", kBF16, kBF16, kBF16, LinearEpilogue::kSiluAndMul, false, false},
    {"bf16 silu bias", kBF16, kBF16, kBF16, LinearEpilogue::kSiluAndMul, true, false},
    {"fp16 bias", kF16, kF16, kF16, LinearEpilogue::kStore, true, false},
    {"fp16 silu", kF16, kF16, kF16, LinearEpilogue::kSiluAndMul, false, false},
};

int check(const LinearCase& c) {
  const int64_t shapes[][2] = {
      {64, 64}, {272, 192}, {1008, 1552}, {2064, 1088}, {528, 14336}, {6144, 4096}};
  double worst = 0;
  int num_runs = 0;
  bool repeats = true;
  for (const auto& shape : shapes) {
    for (const int64_t rows : {1, 65, 128, 129, 192, 300, 1000, 4100}) {
      if (shape[0] * shape[1] > (4 << 20) && rows < 1000) continue;
      LinearOperands operands(c, shape[0], shape[1], rows);
      operands.reset();
      ATOM_BENCH_CHECK(launch_linear_wgmma(operands.params(), nullptr));
      const auto result = operands.result();
      worst = std::max(worst, operands.error(result));
      operands.reset();
      ATOM_BENCH_CHECK(launch_linear_wgmma(operands.params(), nullptr));
      repeats = repeats && operands.result() == result;
      ++num_runs;
    }
  }
  const bool passed = worst <= 1 && repeats;
  std::printf("linear %-16s: %s %d shapes, max_err %.3f of allowed%s\n",
              c.name,
              passed ? "PASS" : "FAIL",
              num_runs,
              worst,
              repeats ? "" : ", does not repeat");
  std::fflush(stdout);
  return passed ? 0 : 1;
}

// ---- the library -------------------------------------------------------------------------------

struct Layer {
  const char* name;
  int64_t out_features, in_features;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
};
constexpr Layer kLayers[] = {{"qkv", 6144, 4096},
                             {"o", 4096, 4096},
                             {"gate_up", 28672, 4096},
                             {"silu", 28672, 4096, LinearEpilogue::kSiluAndMul},
                             {"down", 4096, 14336}};

class Comparison {
 public:
  Comparison(const Layer& layer, int64_t rows)
      : layer_(layer),
        rows_(rows),
        operands_({"", kBF16, kBF16, kBF16, layer.epilogue, false, false},
                  layer.out_features,
                  layer.in_features,
                  rows),
        y_(rows * layer.out_features * 2) {}

  void run(gpuStream_t stream) const {
    ATOM_BENCH_CHECK(launch_linear_wgmma(operands_.params(), stream));
  }

  // The candidate that takes least time.
  GemmAlgorithm choose_algorithm() const {
    constexpr int kMaxCandidates = 12;
    double best = 0;
    GemmAlgorithm chosen;
    for (const GemmAlgorithm& algorithm :
         GemmPlans::current().candidates(key(false), kMaxCandidates)) {
      if (!run_library(algorithm, nullptr)) continue;
      const double us = time_launches([&](gpuStream_t s) { run_library(algorithm, s); }, 3);
      if (best == 0 || us < best) chosen = algorithm;
      if (best == 0 || us < best) best = us;
    }
    return chosen;
  }

  bool run_library(const GemmAlgorithm& algorithm, gpuStream_t stream) const {
    if (!GemmPlans::current().try_algorithm(
            key(false), algorithm, gemm_operands(), scratch_.data(), stream)) {
      return false;
    }
    if (layer_.epilogue != LinearEpilogue::kSiluAndMul) return true;
    SiluAndMulLaunch launch;
    launch.gate_up = y_.data();
    launch.out = operands_.params().y;
    launch.gate_up_stride = layer_.out_features;
    launch.out_stride = launch.size = layer_.out_features / 2;
    launch.num_tokens = rows_;
    ATOM_BENCH_CHECK(launch_silu_and_mul(launch, stream));
    return true;
  }

  // Elements of y that differ from those of the library's one algorithm of a fixed order.
  int64_t num_different() const {
    GemmPlans::current().multiply(key(true), gemm_operands(), scratch_.data(), nullptr);
    const auto expected = y_.download<uint16_t>();
    LinearGpuCall own = operands_.params();
    own.y = y_.data();
    ATOM_BENCH_CHECK(launch_linear_wgmma(own, nullptr));
    const auto got = y_.download<uint16_t>();
    int64_t count = 0;
    for (size_t i = 0; i < got.size(); ++i) count += got[i] != expected[i] ? 1 : 0;
    return count;
  }

  double flops() const {
    return 2.0 * static_cast<double>(rows_ * layer_.out_features * layer_.in_features);
  }

 private:
  GemmKey key(bool fixed_order) const {
    return {.num_rows = rows_,
            .out_features = layer_.out_features,
            .in_features = layer_.in_features,
            .x_stride = layer_.in_features,
            .y_stride = layer_.out_features,
            .fixed_order = fixed_order};
  }
  GemmOperands gemm_operands() const {
    const LinearGpuCall of = operands_.params();
    return {.x = of.x, .weight = of.weight, .y = y_.data()};
  }

  const Layer layer_;
  const int64_t rows_;
  const LinearOperands operands_;
  const Buffer y_;
  const Buffer scratch_{kGemmScratchSize};
};

int compare_bits() {
  int failed = 0;
  for (const Layer& layer : kLayers) {
    if (layer.epilogue != LinearEpilogue::kStore) continue;
    for (const int64_t rows : {100, 1024}) {
      const int64_t count = Comparison(layer, rows).num_different();
      failed += count == 0 ? 0 : 1;
      std::printf("bits %-7s M=%-4d: %s %lld differ from the library's\n",
                  layer.name,
                  static_cast<int>(rows),
                  count == 0 ? "PASS" : "FAIL",
                  static_cast<long long>(count));
    }
  }
  return failed;
}

// A card that has come to its power limit is slower than before: both take turns.
void compare_times(const Layer& layer, int64_t rows) {
  constexpr int kTurns = 5, kRuns = 5;
  const Comparison comparison(layer, rows);
  const GemmAlgorithm algorithm = comparison.choose_algorithm();
  std::vector<double> own, library;
  for (int turn = 0; turn < kTurns; ++turn) {
    library.push_back(
        time_launches([&](gpuStream_t s) { comparison.run_library(algorithm, s); }, kRuns));
    own.push_back(time_launches([&](gpuStream_t s) { comparison.run(s); }, kRuns));
  }
  std::sort(own.begin(), own.end());
  std::sort(library.begin(), library.end());
  const double own_us = own[kTurns / 2], library_us = library[kTurns / 2];
  std::printf("time %-7s M=%-4d own %8.1f us %5.0f TFLOP/s, library %8.1f us %5.0f, %.3f of it\n",
              layer.name,
              static_cast<int>(rows),
              own_us,
              comparison.flops() / own_us * 1e-6,
              library_us,
              comparison.flops() / library_us * 1e-6,
              own_us / library_us);
  std::fflush(stdout);
}

int run(const std::string& mode) {
  if (mode == "time") {
    measure_roofs();  // prints the card
    for (const int64_t rows : {1024, 2048, 8192}) {
      for (const Layer& layer : kLayers) compare_times(layer, rows);
    }
    return 0;
  }
  int failed = 0;
  for (const LinearCase& c : kCases) failed += check(c);
  if (gemm_library().ok()) failed += compare_bits();
  std::printf("linear_wgmma_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run(argc > 1 ? argv[1] : "check");
}
