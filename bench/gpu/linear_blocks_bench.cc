// Checks and times the linears in FP8 with scales of groups on Hopper: activations of 1 x 128,
// weights of blocks of 128 x 128.
//
// usage: linear_blocks_bench [check [few]|decode|few|prefill]
//
// Checks compare with sums in double over random shapes, `few` those of at most 300 rows. Timings
// are of linears of some models, in a captured graph over weights that no cache holds: `decode` in
// percent of the read bandwidth measured in the same run, `few` in microseconds of all tiles for 65
// to 256 rows, `prefill` in operations per second, both beside cuBLASLt's (by the path in
// ATOM_CUBLASLT).
#include <algorithm>
#include <memory>
#include <string>

#include "harness.h"
#include "library_gemm.h"
#include "linear_blocks_check.h"
#include "ops/linear/blocks/blocks_cuda.h"
#include "ops/linear/linear_float8_cuda.h"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/skinny/skinny_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kF8 = Element::kFloat8E4M3;

// Weights that no cache holds, and rows of x.
class Linear {
 public:
  Linear(const BlocksLayer& layer, int64_t rows)
      : layer_(layer),
        rows_(rows),
        size_(layer.out_features * layer.in_features),
        num_sets_(static_cast<int>(std::clamp<int64_t>(kEnough / size_, 1, kMaxSets))),
        weight_(size_ * num_sets_),
        x_(rows * layer.in_features),
        scales_(std::max(rows + 4, layer.out_features) * num_groups() * 4),
        transposed_(scales_.size()),
        y_(rows * layer.out_features * 2) {
    fill_random(weight_.data(), kF8, size_ * num_sets_, 448.0f, 1);
    fill_random(x_.data(), kF8, rows * layer.in_features, 448.0f, 2);
    scales_.upload(std::vector<float>(scales_.size() / 4, 1.0f / 4480));
  }

  LinearGpuCall call(int set, int64_t rows) const {
    LinearGpuCall p = call(set);
    p.num_rows = static_cast<int32_t>(rows);
    return p;
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
    return run_library(library, set, rows_, stream);
  }
  // As linear() does: with the kernel that brings the scales of x into the library's order.
  bool run_linear_by_library(const LibraryGemm& library,
                             int set,
                             int64_t rows,
                             gpuStream_t stream) const {
    constexpr int64_t kScaleRows = 4;
    const int64_t stride = (rows + kScaleRows - 1) / kScaleRows * kScaleRows;
    transpose_scales_cuda(
        scales_.data<float>(), transposed_.data<float>(), rows, num_groups(), stride, stream);
    return run_library(library, set, rows, stream);
  }
  bool run_library(const LibraryGemm& library, int set, int64_t rows, gpuStream_t stream) const {
    return library.multiply_blocks(x_.data(),
                                   scales_.data<float>(),
                                   weight_.data(set * size_),
                                   scales_.data<float>(),
                                   y_.data(),
                                   rows,
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

  const BlocksLayer layer_;
  const int64_t rows_, size_;
  const int num_sets_;
  const Buffer weight_, x_;
  Buffer scales_;
  const Buffer transposed_;
  const Buffer y_;
};

void time_decode(const Roofs& roofs) {
  std::printf("decode: us and %% of the read bandwidth of skinny with groups | without | blocks\n");
  for (const BlocksLayer& layer : kBlocksLayers) {
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

// What all tiles take for `rows` of the rows of `linear`, and which are chosen.
void time_few(const BlocksLayer& layer,
              const Linear& linear,
              int64_t rows,
              const LibraryGemm& library) {
  int num_multiprocessors = 0;
  ATOM_BENCH_CHECK(count_multiprocessors(&num_multiprocessors));
  const LinearBlocksShape shape = linear_blocks_shape(linear.call(0, rows));
  const LinearBlocksTuning whole = linear_blocks_tuning(shape, num_multiprocessors);
  const LinearBlocksTuning divided = linear_blocks_divided_tuning(shape, num_multiprocessors);
  std::printf("%-10s %3d rows:", layer.name, static_cast<int>(rows));
  for (const LinearBlocksTuning& tuning : linear_blocks_tunings()) {
    if (!takes_linear_blocks(shape, tuning)) continue;
    const double us = time_call(
        [&](gpuStream_t stream, int set) {
          ATOM_BENCH_CHECK(launch_linear_blocks(linear.call(set, rows), &tuning, stream));
        },
        false,
        linear.num_sets());
    std::printf(" %s %.1f%s%s",
                name_of(tuning).c_str(),
                us,
                tuning == whole ? "*" : "",
                tuning == divided ? "+" : "");
  }
  if (library.is_there() && linear.run_linear_by_library(library, 0, rows, nullptr)) {
    const double us =
        time_call([&](gpuStream_t stream,
                      int set) { linear.run_linear_by_library(library, set, rows, stream); },
                  false,
                  linear.num_sets());
    std::printf(" library %.1f", us);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void time_few() {
  constexpr int64_t kRows[] = {65, 96, 128, 192, 256};
  const LibraryGemm library;
  std::printf(
      "us by tile (rows x columns x row tiles x column tiles that share copies x parts of k), *: "
      "chosen with k whole, +: chosen, and by the library, which activates nothing%s\n",
      library.is_there() ? "" : ", which is not there");
  for (const BlocksLayer& layer : kBlocksLayers) {
    const Linear linear(layer, kRows[std::size(kRows) - 1]);
    for (const int64_t rows : kRows) time_few(layer, linear, rows, library);
  }
}

std::vector<LinearBlocksTuning> tunings_for_many_rows() {
  std::vector<LinearBlocksTuning> tunings;
  for (const LinearBlocksTuning& tuning : linear_blocks_tunings()) {
    if (is_for_many_rows(tuning)) tunings.push_back(tuning);
  }
  return tunings;
}

// A card that has come to its power limit is slower than before: all take turns.
void time_prefill(const BlocksLayer& layer, int64_t rows, const LibraryGemm& library) {
  constexpr int kTurns = 3, kRuns = 5;
  const std::vector<LinearBlocksTuning> tunings = tunings_for_many_rows();
  const size_t num_tunings = tunings.size();
  const Linear linear(layer, rows);
  std::vector<std::vector<double>> us(num_tunings + 2);
  bool has_library = library.is_there() && linear.run_library(library, 0, nullptr);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < us.size(); ++i) {
      const bool chosen = i == num_tunings;
      if (i == num_tunings + 1) {
        if (!has_library) continue;
        us[i].push_back(
            time_launches([&](gpuStream_t s) { linear.run_library(library, 0, s); }, kRuns));
        continue;
      }
      const LinearBlocksTuning* tuning = chosen ? nullptr : &tunings[i];
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

int run(const std::string& mode, const std::string& subset) {
  if (mode == "decode") {
    time_decode(measure_roofs());
    return 0;
  }
  if (mode == "few") {
    time_few();
    return 0;
  }
  if (mode == "prefill") {
    measure_roofs();  // prints the card
    const LibraryGemm library;
    std::printf("us and TFLOP/s of tiles");
    for (const LinearBlocksTuning& t : tunings_for_many_rows()) {
      std::printf(" | %s", name_of(t).c_str());
    }
    std::printf(" | chosen | library (with SiLU: without it)\n");
    for (const int64_t rows : {128, 256, 1024, 4096, 16384}) {
      for (const BlocksLayer& layer : kBlocksLayers) time_prefill(layer, rows, library);
    }
    return 0;
  }
  return check_linears_in_blocks(subset == "few") == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run(argc > 1 ? argv[1] : "check", argc > 2 ? argv[2] : "");
}
