// Checks and times the linears in FP8 with scales of groups on Hopper: activations of 1 x 128,
// weights of blocks of 128 x 128.
//
// usage: linear_blocks_bench [check|decode|prefill]
//
// Checks compare with sums in double over random shapes. Timings are of linears of some models, in
// a captured graph over weights that no cache holds: `decode` in percent of the read bandwidth
// measured in the same run, `prefill` in operations per second, beside cuBLASLt's (by the path in
// ATOM_CUBLASLT).
#include <algorithm>
#include <memory>
#include <string>

#include "harness.h"
#include "library_gemm.h"
#include "linear_case.h"
#include "ops/linear/blocks/blocks_cuda.h"
#include "ops/linear/skinny/skinny_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16, kF8 = Element::kFloat8E4M3;
constexpr int32_t kScaleRows = 128;

// ---- checks ------------------------------------------------------------------------------------

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
constexpr LinearBlocksTuning kBlocksTunings[] = {
    {256, 128, 2}, {256, 128, 2, false}, {128, 128, 2}, {128, 128, 1}, {128, 64, 1}};

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

int check_blocks(const LinearCase& c) {
  const int64_t shapes[][2] = {
      {64, 64}, {200, 192}, {1152, 1552}, {2176, 1088}, {640, 7168}, {6144, 4096}};
  Check check;
  int failed = 0;
  for (const auto& shape : shapes) {
    for (const int64_t rows : {1, 65, 128, 129, 300, 1000, 4100}) {
      if (shape[0] * shape[1] > (4 << 20) && rows < 1000) continue;
      LinearOperands o(c, shape[0], shape[1], rows);
      std::vector<uint8_t> first;
      for (const LinearBlocksTuning& tuning : kBlocksTunings) {
        bool launched = false;
        check.run(o, [&] {
          const gpuError_t error = launch_linear_blocks(o.params(), &tuning, nullptr);
          launched = error == ATOM_GPU(Success);
          return error;
        });
        if (!launched) continue;
        if (first.empty()) first = o.result();
        if (o.result() == first) continue;
        std::printf("blocks %s: FAIL tile %d x %d has other bits\n",
                    c.name,
                    tuning.tile_rows,
                    tuning.tile_columns);
        ++failed;
      }
    }
  }
  return failed + check.print("blocks", c.name, c.epilogue != LinearEpilogue::kAddResidual);
}

// ---- timing ------------------------------------------------------------------------------------

struct Layer {
  const char* name;
  int64_t out_features, in_features;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
};
constexpr Layer kLayers[] = {{"30B qkv", 5120, 2048},
                             {"30B o", 2048, 4096},
                             {"Next qkvz", 12288, 2048},
                             {"8B qkv", 6144, 4096},
                             {"8B gate_up", 28672, 4096, LinearEpilogue::kSiluAndMul},
                             {"8B down", 4096, 14336},
                             {"V3 qkv_a", 2112, 7168},
                             {"V3 q_b", 24576, 1536},
                             {"V3 o", 7168, 16384},
                             {"V3 gate_up", 36864, 7168, LinearEpilogue::kSiluAndMul}};

// Weights that no cache holds, and rows of x.
class Linear {
 public:
  Linear(const Layer& layer, int64_t rows)
      : layer_(layer),
        rows_(rows),
        size_(layer.out_features * layer.in_features),
        num_sets_(static_cast<int>(std::clamp<int64_t>(kEnough / size_, 1, kMaxSets))),
        weight_(size_ * num_sets_),
        x_(rows * layer.in_features),
        scales_(std::max(rows + 4, layer.out_features) * num_groups() * 4),
        y_(rows * layer.out_features * 2) {
    fill_random(weight_.data(), kF8, size_ * num_sets_, 448.0f, 1);
    fill_random(x_.data(), kF8, rows * layer.in_features, 448.0f, 2);
    scales_.upload(std::vector<float>(scales_.size() / 4, 1.0f / 4480));
  }

  LinearGpuCall call(int set) const {
    const bool gated = layer_.epilogue == LinearEpilogue::kSiluAndMul;
    LinearGpuCall p;
    p.x = x_.data();
    p.weight = weight_.data(set * size_);
    p.x_scale = p.weight_scale = scales_.data<float>();
    p.y = y_.data();
    p.x_stride = layer_.in_features;
    p.y_stride = layer_.out_features / (gated ? 2 : 1);
    p.num_rows = static_cast<int32_t>(rows_);
    p.out_features = static_cast<int32_t>(layer_.out_features);
    p.in_features = static_cast<int32_t>(layer_.in_features);
    p.x_element = p.weight_element = kF8;
    p.epilogue = layer_.epilogue;
    p.group_size = kLinearGroupSize;
    p.scale_rows = kScaleRows;
    return p;
  }
  // The same without groups, for what these cost.
  LinearGpuCall plain_call(int set) const {
    LinearGpuCall p = call(set);
    p.group_size = 0;
    return p;
  }

  bool run_library(const LibraryGemm& library, int set, gpuStream_t stream) const {
    return library.multiply_blocks(x_.data(),
                                   scales_.data<float>(),
                                   weight_.data(set * size_),
                                   scales_.data<float>(),
                                   y_.data(),
                                   rows_,
                                   layer_.out_features,
                                   layer_.in_features,
                                   stream);
  }

  int num_sets() const { return num_sets_; }
  double num_bytes() const {
    return static_cast<double>(size_ + x_.size() + rows_ * num_groups() * 4 +
                               call(0).y_stride * rows_ * 2);
  }
  double flops() const { return 2.0 * static_cast<double>(size_) * static_cast<double>(rows_); }

 private:
  static constexpr int64_t kEnough = int64_t{512} << 20, kMaxSets = 50;

  int64_t num_groups() const { return (layer_.in_features + 127) / 128; }

  const Layer layer_;
  const int64_t rows_, size_;
  const int num_sets_;
  const Buffer weight_, x_;
  Buffer scales_;
  const Buffer y_;
};

void time_decode(const Roofs& roofs) {
  std::printf("decode: us and %% of the read bandwidth of skinny with groups | without | blocks\n");
  for (const Layer& layer : kLayers) {
    for (const int64_t rows : {1, 8, 16, 32, 64}) {
      const Linear linear(layer, rows);
      const auto us = [&](const auto& launch) {
        return time_call(
            [&](gpuStream_t stream, int set) { ATOM_BENCH_CHECK(launch(stream, set)); },
            false,
            linear.num_sets());
      };
      const double groups = us([&](gpuStream_t stream, int set) {
        return launch_linear_skinny(linear.call(set), nullptr, stream);
      });
      const double plain = us([&](gpuStream_t stream, int set) {
        return launch_linear_skinny(linear.plain_call(set), nullptr, stream);
      });
      const double blocks = us([&](gpuStream_t stream, int set) {
        return launch_linear_blocks(linear.call(set), nullptr, stream);
      });
      const auto percent = [&](double time) {
        return 100 * linear.num_bytes() / (time * 1e-6) / roofs.read;
      };
      std::printf("%-10s %2d rows: %6.1f us %5.1f %% | %6.1f %5.1f %% | %6.1f %5.1f %%\n",
                  layer.name,
                  static_cast<int>(rows),
                  groups,
                  percent(groups),
                  plain,
                  percent(plain),
                  blocks,
                  percent(blocks));
      std::fflush(stdout);
    }
  }
}

// A card that has come to its power limit is slower than before: all take turns.
void time_prefill(const Layer& layer, int64_t rows, const LibraryGemm& library) {
  constexpr int kTurns = 3, kRuns = 5, kNumTunings = std::size(kBlocksTunings);
  const Linear linear(layer, rows);
  std::vector<double> us[kNumTunings + 2];
  bool has_library = library.is_there() && linear.run_library(library, 0, nullptr);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < kNumTunings + 2; ++i) {
      const bool chosen = i == kNumTunings;
      if (i == kNumTunings + 1) {
        if (!has_library) continue;
        us[i].push_back(
            time_launches([&](gpuStream_t s) { linear.run_library(library, 0, s); }, kRuns));
        continue;
      }
      const LinearBlocksTuning* tuning = chosen ? nullptr : &kBlocksTunings[i];
      const gpuError_t error = launch_linear_blocks(linear.call(0), tuning, nullptr);
      if (error == ATOM_GPU(ErrorInvalidValue)) continue;
      us[i].push_back(time_launches(
          [&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_linear_blocks(linear.call(0), tuning, s)); },
          kRuns));
    }
  }
  std::printf("%-10s M=%-5d", layer.name, static_cast<int>(rows));
  for (std::vector<double>& times : us) {
    std::sort(times.begin(), times.end());
    const double median = times.empty() ? 0 : times[times.size() / 2];
    std::printf(" | %8.1f us %5.0f", median, median > 0 ? linear.flops() / median * 1e-6 : 0);
  }
  std::printf("\n");
  std::fflush(stdout);
}

int run(const std::string& mode) {
  if (mode == "decode") {
    time_decode(measure_roofs());
    return 0;
  }
  if (mode == "prefill") {
    measure_roofs();  // prints the card
    const LibraryGemm library;
    std::printf("us and TFLOP/s of tiles");
    for (const LinearBlocksTuning& t : kBlocksTunings) {
      std::printf(" | %d x %d by %d", t.tile_rows, t.tile_columns, t.cluster_size);
    }
    std::printf(" | chosen | library (with SiLU: without it)\n");
    for (const int64_t rows : {128, 256, 1024, 4096, 16384}) {
      for (const Layer& layer : kLayers) time_prefill(layer, rows, library);
    }
    return 0;
  }
  int failed = 0;
  for (const LinearCase& c : kCases) failed += check_skinny(c) + check_blocks(c);
  std::printf("linear_blocks_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run(argc > 1 ? argv[1] : "check");
}
