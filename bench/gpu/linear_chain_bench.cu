// Times linears in FP8 with scales of groups on Hopper as they are in a decode step: each behind a
// small kernel that writes x, in a captured graph, over weights that no cache holds. What is
// printed is what the linear adds to the chain, in microseconds.
//
// usage: linear_chain_bench [few]: of 8 to 64 rows by "skinny" and "split-k", or with `few` of 65
// to 256 rows by all tiles of "blocks"
#include <algorithm>
#include <string>

#include "harness.h"
#include "linear_blocks_check.h"
#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/blocks/blocks_cuda.h"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/split_k/split_k_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kF8 = Element::kFloat8E4M3;

// Long enough for the weights to come meanwhile, as attention and experts are.
constexpr int64_t kCycles = 16000;

// What a model's other kernels do between two linears: data and instructions of before leave the
// caches.
constexpr int64_t kStreamed = int64_t{96} << 20;
constexpr int kInstructions = 8000;

__global__ void evict(const uint4* data, float* sink) {
  float sum = 0;
  const int64_t step = gridDim.x * blockDim.x;
#pragma unroll 8
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kStreamed / 16; i += step) {
    sum += __uint_as_float(data[i].x);
  }
  if (threadIdx.x < 32) {
#pragma unroll
    for (int i = 0; i < kInstructions; ++i) sum = fmaf(sum, 1.0f + i * 0x1p-20f, 1.0f);
  }
  if (sum == 12345) *sink = sum;
}

__global__ void write_rows(
    const uint4* from, uint4* x, int64_t size, float* scales, int64_t count) {
  ops::device::allow_next_grid();
  ops::device::wait_for_previous_grid();
  const int64_t begin = clock64();
  while (clock64() - begin < kCycles) {
  }
  const int64_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  for (int64_t i = first; i < size; i += step) x[i] = from[i];
  for (int64_t i = first; i < count; i += step) scales[i] = 1.0f / 4480;
}

class Chain {
 public:
  Chain(const BlocksLayer& layer, int64_t rows)
      : layer_(layer),
        rows_(rows),
        size_(layer.out_features * layer.in_features),
        num_sets_(static_cast<int>(std::clamp<int64_t>(kEnough / size_, 1, kMaxSets))),
        weight_(size_ * num_sets_),
        from_(rows * layer.in_features),
        x_(rows * layer.in_features),
        x_scales_(rows * num_groups() * 4),
        weight_scales_(layer.out_features * num_groups() * 4),
        y_(rows * layer.out_features * 2),
        other_(kStreamed) {
    other_.fill_bytes(0);
    fill_random(weight_.data(), kF8, size_ * num_sets_, 448.0f, 1);
    fill_random(from_.data(), kF8, rows * layer.in_features, 448.0f, 2);
    weight_scales_.upload(std::vector<float>(weight_scales_.size() / 4, 1.0f / 4480));
    alone_ = time([](gpuStream_t, const LinearGpuCall&) {});
  }

  LinearGpuCall call(int set) const {
    LinearGpuCall p;
    p.x = x_.data();
    p.weight = weight_.data(set * size_);
    p.x_scale = x_scales_.data<float>();
    p.weight_scale = weight_scales_.data<float>();
    p.y = y_.data();
    p.x_stride = layer_.in_features;
    p.y_stride = layer_.out_features;
    p.num_rows = static_cast<int32_t>(rows_);
    p.out_features = static_cast<int32_t>(layer_.out_features);
    p.in_features = static_cast<int32_t>(layer_.in_features);
    p.x_element = p.weight_element = kF8;
    p.group_size = kLinearGroupSize;
    p.scale_rows = kScaleRows;
    return p;
  }

  // What launch(stream, call) adds.
  template <typename Launch>
  double us(Launch&& launch) const {
    return time([&](gpuStream_t stream, const LinearGpuCall& p) {
             ATOM_BENCH_CHECK(launch(p, stream));
           }) -
           alone_;
  }

 private:
  static constexpr int64_t kEnough = int64_t{512} << 20, kMaxSets = 50;

  int64_t num_groups() const { return (layer_.in_features + 127) / 128; }

  template <typename Launch>
  double time(Launch&& launch) const {
    return time_call(
        [&](gpuStream_t stream, int set) {
          evict<<<132, 256, 0, stream>>>(other_.data<uint4>(), y_.data<float>());
          ATOM_BENCH_CHECK(
              ops::device::launch(write_rows,
                                  dim3(static_cast<unsigned>(std::min<int64_t>(rows_, 64))),
                                  dim3(256),
                                  0,
                                  stream,
                                  true,
                                  from_.data<uint4>(),
                                  x_.data<uint4>(),
                                  x_.size() / 16,
                                  x_scales_.data<float>(),
                                  x_scales_.size() / 4));
          launch(stream, call(set));
        },
        false,
        num_sets_);
  }

  const BlocksLayer layer_;
  const int64_t rows_, size_;
  const int num_sets_;
  const Buffer weight_, from_, x_, x_scales_;
  Buffer weight_scales_;
  const Buffer y_;
  Buffer other_;
  double alone_ = 0;
};

void time_decode(const BlocksLayer& layer, int64_t rows, int num_multiprocessors) {
  const Chain chain(layer, rows);
  std::printf("%-10s %2d rows: skinny", layer.name, static_cast<int>(rows));
  std::printf(" %.2f", chain.us([](const LinearGpuCall& p, gpuStream_t stream) {
    return launch_linear_skinny(p, nullptr, stream);
  }));
  std::printf(" |");
  const LinearSplitKTuning chosen = linear_split_k_tuning(chain.call(0), num_multiprocessors);
  for (const LinearSplitKTuning& tuning : linear_split_k_tunings()) {
    if (!takes_linear_split_k(chain.call(0), tuning, num_multiprocessors)) continue;
    const double us = chain.us([&](const LinearGpuCall& p, gpuStream_t stream) {
      return launch_linear_split_k(p, tuning, stream);
    });
    std::printf(
        " %dx%d %.2f%s", tuning.tile_columns, tuning.parts, us, tuning == chosen ? "*" : "");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void time_few(const BlocksLayer& layer, int64_t rows, int num_multiprocessors) {
  const Chain chain(layer, rows);
  const LinearBlocksShape shape = linear_blocks_shape(chain.call(0));
  const LinearBlocksTuning divided = linear_blocks_divided_tuning(shape, num_multiprocessors);
  std::printf("%-10s %3d rows:", layer.name, static_cast<int>(rows));
  for (const LinearBlocksTuning& tuning : linear_blocks_tunings()) {
    if (tuning.tile_rows > 128 || !takes_linear_blocks(shape, tuning)) continue;
    const LinearBlocksSteps steps = linear_blocks_steps(shape, tuning, num_multiprocessors);
    if (steps.rounds() > 2) continue;
    const double us = chain.us([&](const LinearGpuCall& p, gpuStream_t stream) {
      return launch_linear_blocks(p, &tuning, stream);
    });
    std::printf(" %s %.2f%s", name_of(tuning).c_str(), us, tuning == divided ? "+" : "");
  }
  std::printf("\n");
  std::fflush(stdout);
}

int run(bool few, int num_layers) {
  int num_multiprocessors = 0;
  ATOM_BENCH_CHECK(count_multiprocessors(&num_multiprocessors));
  for (const BlocksLayer& layer : kBlocksLayers) {
    if (layer.epilogue != LinearEpilogue::kStore) continue;
    if (num_layers-- == 0) break;
    if (few) {
      for (const int64_t rows : {128, 256}) time_few(layer, rows, num_multiprocessors);
    } else {
      for (const int64_t rows : {8, 16, 32, 64}) time_decode(layer, rows, num_multiprocessors);
    }
  }
  return 0;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run(argc > 1 && std::string(argv[1]) == "few",
                          argc > 2 ? atoi(argv[2]) : 100);
}
