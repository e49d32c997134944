// What cuBLASLt does with the linear layers of an 8-billion-parameter Llama: for each shape the
// time of the algorithm that it proposes first and of the best that it offers, in bfloat16 and FP8,
// with and without fast accumulation; what it supports and how exact it is; and the speed of
// ops::quantize beside it.
//   linear_library_bench [support] [accuracy] [quant] [table]; all without arguments
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "ops/linear/library/gemm_library.h"
#include "ops/linear/library/gemm_plans.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_float8_cuda.h"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/element_of.h"
#include "tensor/tensor.h"

namespace atom::bench {
namespace {

using ops::GemmKey;
using ops::GemmOperands;
using ops::GemmPlans;
using ops::GemmScales;

constexpr int kMaxCandidates = 32;
constexpr int64_t kWeightsSize = int64_t{1} << 30;
constexpr int64_t kMaxRows = 8192;
constexpr int64_t kMaxFeatures = 128256;
constexpr int64_t kMaxScaledRows = 1024;

struct Layer {
  const char* name;
  int64_t out_features, in_features;
};

constexpr Layer kLayers[] = {{"qkv", 6144, 4096},
                             {"o", 4096, 4096},
                             {"gate_up", 28672, 4096},
                             {"down", 4096, 14336},
                             {"lm_head", 128256, 4096}};

// Operands large enough for every case.
class Operands {
 public:
  Operands() {
    std::vector<float> scales(kMaxFeatures);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f + 0.001f * float(i % 13);
    x_scales_.upload(scales);
    std::reverse(scales.begin(), scales.end());
    weight_scales_.upload(scales);
    bias_.fill_bytes(0);
  }

  void fill(DType dtype) {
    const int64_t size = dtype_size(dtype);
    fill_random(x_.data(), stored_element_of(dtype), x_.size() / size, dtype_bound(dtype), 1);
    fill_random(
        weights_.data(), stored_element_of(dtype), weights_.size() / size, dtype_bound(dtype), 2);
  }

  GemmOperands of(const GemmKey& key, int copy = 0) const {
    const int64_t weight_size = key.out_features * key.in_features * dtype_size(key.dtype);
    return {.x = x_.data(),
            .weight = weights_.data(weight_size * copy),
            .bias = bias_.data(),
            .y = y_.data(),
            .x_scales = x_scales_.data<float>(),
            .weight_scales = weight_scales_.data<float>()};
  }

  int num_copies(const GemmKey& key) const {
    const int64_t weight_size = key.out_features * key.in_features * dtype_size(key.dtype);
    const int64_t wanted = key.num_rows >= 1024 ? 1 : 8;
    return static_cast<int>(std::clamp<int64_t>(kWeightsSize / weight_size, 1, wanted));
  }

  // What linear() does with few rows: float32 sums in y to bfloat16 by scales of ours.
  void scale_sums(const GemmKey& key, gpuStream_t stream) const {
    ops::scale_sums_cuda({.sums = y_.data<float>(),
                          .x_scales = x_scales_.data<float>(),
                          .weight_scales = weight_scales_.data<float>(),
                          .bias = nullptr,
                          .y = scaled_.data(),
                          .num_rows = key.num_rows,
                          .num_columns = key.out_features,
                          .y_stride = key.out_features,
                          .x_scale_per_row = true,
                          .weight_scale_per_row = true,
                          .bias_element = Element::kFloat32,
                          .y_element = Element::kBFloat16},
                         stream);
  }

  void* scratch() const { return scratch_.data(); }
  const Buffer& y() const { return y_; }
  const Buffer& reference() const { return reference_; }
  const Buffer& x() const { return x_; }

 private:
  static float dtype_bound(DType dtype) { return dtype == DType::kFloat8E4M3 ? 448.0f : 1.0f; }

  Buffer x_{kMaxRows * 14336 * 2};
  Buffer weights_{kWeightsSize + (int64_t{64} << 20)};
  Buffer y_{kMaxRows * 28672 * 4};
  Buffer scaled_{kMaxScaledRows * 28672 * 2};
  Buffer reference_{64 * kMaxFeatures * 4};
  Buffer bias_{kMaxFeatures * 4};
  Buffer x_scales_{kMaxFeatures * 4};
  Buffer weight_scales_{kMaxFeatures * 4};
  Buffer scratch_{ops::kGemmScratchSize};
};

GemmKey key_of(const Layer& layer, int64_t rows, DType dtype, GemmScales scales, DType y_dtype) {
  return {.num_rows = rows,
          .out_features = layer.out_features,
          .in_features = layer.in_features,
          .x_stride = layer.in_features,
          .y_stride = layer.out_features,
          .dtype = dtype,
          .y_dtype = y_dtype,
          .scales = scales};
}

// By the plain kernel, in float32.
void multiply_plainly(const GemmKey& key, const Operands& operands, float* y) {
  const GemmOperands of = operands.of(key);
  ops::linear_cuda({.x = of.x,
                    .weight = of.weight,
                    .bias = nullptr,
                    .x_scales = of.x_scales,
                    .weight_scales = of.weight_scales,
                    .y = y,
                    .num_rows = key.num_rows,
                    .out_features = key.out_features,
                    .in_features = key.in_features,
                    .x_stride = key.x_stride,
                    .y_stride = key.y_stride,
                    .x_scale_per_row = key.scales == GemmScales::kVectors,
                    .weight_scale_per_row = key.scales == GemmScales::kVectors,
                    .x_element = stored_element_of(key.dtype),
                    .weight_element = stored_element_of(key.dtype),
                    .bias_element = Element::kFloat32,
                    .y_element = Element::kFloat32},
                   nullptr);
}

// ||y - reference|| / ||reference|| and the largest difference in units of the root mean square.
struct Error {
  double relative = 0;
  double largest = 0;
};

Error compare(const GemmKey& key, const Operands& operands) {
  const int64_t count = key.num_rows * key.out_features;
  std::vector<char> y(static_cast<size_t>(count * dtype_size(key.y_dtype)));
  std::vector<float> reference(static_cast<size_t>(count));
  ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
  ATOM_BENCH_CHECK(
      ATOM_GPU(Memcpy)(y.data(), operands.y().data(), y.size(), ATOM_GPU(MemcpyDeviceToHost)));
  ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(reference.data(),
                                    operands.reference().data(),
                                    count * sizeof(float),
                                    ATOM_GPU(MemcpyDeviceToHost)));
  double difference = 0, norm = 0, largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double delta = element_value(stored_element_of(key.y_dtype), y.data(), i) - reference[i];
    difference += delta * delta;
    norm += static_cast<double>(reference[i]) * reference[i];
    largest = std::max(largest, std::abs(delta));
  }
  return {std::sqrt(difference / norm), largest / std::sqrt(norm / static_cast<double>(count))};
}

// Which rows counts and dtypes the library takes, each held against the plain kernel.
void show_support(Operands& operands) {
  const Layer layer{"", 512, 1024};
  operands.fill(DType::kFloat8E4M3);
  GemmPlans& plans = GemmPlans::current();
  for (const GemmScales scales : {GemmScales::kScalars, GemmScales::kVectors}) {
    for (const DType y_dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
      for (const bool has_bias : {false, true}) {
        std::printf("support fp8 %s to %s%s:",
                    scales == GemmScales::kVectors ? "vectors" : "scalars",
                    dtype_name(y_dtype),
                    has_bias ? " with bias" : "");
        for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 33, 64, 100, 333}) {
          GemmKey key = key_of(layer, rows, DType::kFloat8E4M3, scales, y_dtype);
          key.has_bias = has_bias;
          if (!plans.supports(key)) {
            std::printf(" %d:-", static_cast<int>(rows));
            continue;
          }
          multiply_plainly(key, operands, operands.reference().data<float>());
          ATOM_BENCH_CHECK(ATOM_GPU(Memset)(operands.y().data(), 255, rows * 512 * 4));
          plans.multiply(key, operands.of(key), operands.scratch(), nullptr);
          std::printf(" %d:%.1e", static_cast<int>(rows), compare(key, operands).relative);
        }
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }
}

void show_accuracy(Operands& operands) {
  operands.fill(DType::kFloat8E4M3);
  GemmPlans& plans = GemmPlans::current();
  for (const Layer& layer : kLayers) {
    if (layer.out_features > 30000) continue;
    for (const DType y_dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const GemmScales scales : {GemmScales::kScalars, GemmScales::kVectors}) {
        for (const bool fast : {false, true}) {
          GemmKey key = key_of(layer, 64, DType::kFloat8E4M3, scales, y_dtype);
          key.fast_accumulation = fast;
          std::printf("accuracy %-8s to %-8s %s fast %d:",
                      layer.name,
                      dtype_name(y_dtype),
                      scales == GemmScales::kVectors ? "vectors" : "scalars",
                      fast);
          if (plans.supports(key)) {
            multiply_plainly(key, operands, operands.reference().data<float>());
            plans.multiply(key, operands.of(key), operands.scratch(), nullptr);
            const Error error = compare(key, operands);
            std::printf(" relative %.2e largest %.2e\n", error.relative, error.largest);
          } else {
            std::printf(" not supported\n");
          }
          std::fflush(stdout);
        }
      }
    }
  }
}

// Microseconds of a call; negative when the algorithm cannot run.
double time_algorithm(const GemmKey& key,
                      const ops::GemmAlgorithm& algorithm,
                      const Operands& operands,
                      bool scales_sums) {
  GemmPlans& plans = GemmPlans::current();
  if (!plans.try_algorithm(key, algorithm, operands.of(key), operands.scratch(), nullptr)) {
    return -1;
  }
  ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
  const int copies = operands.num_copies(key);
  const double all = time_graph(
      [&](gpuStream_t stream) {
        for (int copy = 0; copy < copies; ++copy) {
          plans.try_algorithm(key, algorithm, operands.of(key, copy), operands.scratch(), stream);
          if (scales_sums) operands.scale_sums(key, stream);
        }
      },
      5);
  return all / copies;
}

struct Way {
  const char* name;
  DType dtype;
  GemmScales scales;
  bool fast;
  bool scales_sums = false;
};

constexpr Way kWays[] = {
    {"bf16", DType::kBFloat16, GemmScales::kNone, false},
    {"fp8 sums", DType::kFloat8E4M3, GemmScales::kNone, false, true},
    {"fp8 vectors", DType::kFloat8E4M3, GemmScales::kVectors, false},
    {"fp8 scalars", DType::kFloat8E4M3, GemmScales::kScalars, false},
};

void show_times(const Way& way, Operands& operands, const Roofs& roofs) {
  operands.fill(way.dtype);
  for (const Layer& layer : kLayers) {
    const bool is_head = std::strcmp(layer.name, "lm_head") == 0;
    if (is_head && way.dtype != DType::kBFloat16) continue;  // never quantized
    for (const int64_t rows : {1, 8, 16, 24, 32, 64, 128, 256, 512, 1024, 8192}) {
      if (is_head && rows > 256) continue;
      if (way.scales_sums && rows > kMaxScaledRows) continue;
      GemmKey key = key_of(layer,
                           rows,
                           way.dtype,
                           way.scales,
                           is_head || way.scales_sums ? DType::kFloat32 : DType::kBFloat16);
      key.fast_accumulation = way.fast;
      const auto begin = std::chrono::steady_clock::now();
      const auto candidates = GemmPlans::current().candidates(key, kMaxCandidates);
      const std::chrono::duration<double, std::micro> asked =
          std::chrono::steady_clock::now() - begin;
      if (candidates.empty()) {
        std::printf(
            "time %-16s %-8s M=%-4d not supported\n", way.name, layer.name, static_cast<int>(rows));
        continue;
      }
      std::vector<double> times;
      for (const auto& candidate : candidates) {
        times.push_back(time_algorithm(key, candidate, operands, way.scales_sums));
      }
      size_t best = 0;
      for (size_t i = 0; i < times.size(); ++i) {
        if (times[i] > 0 && times[i] < times[best]) best = i;
      }
      const double bytes =
          static_cast<double>(layer.out_features * layer.in_features * dtype_size(way.dtype) +
                              rows * (layer.in_features * dtype_size(way.dtype) +
                                      layer.out_features * dtype_size(key.y_dtype)));
      const double flops = 2.0 * static_cast<double>(rows * layer.out_features) *
                           static_cast<double>(layer.in_features);
      std::printf(
          "time %-16s %-8s M=%-4d first %8.1f best %8.1f us (%2zu of %2zu, %.2fx) %5.1f %% of "
          "read, %6.1f TFLOP/s; asked %.0f us\n",
          way.name,
          layer.name,
          static_cast<int>(rows),
          times[0],
          times[best],
          best,
          times.size(),
          times[0] / times[best],
          100 * bytes / (times[best] * 1e-6) / roofs.read,
          flops / times[best] * 1e-6,
          asked.count());
      std::fflush(stdout);
    }
  }
}

void show_quant_times(Operands& operands, const Roofs& roofs) {
  operands.fill(DType::kBFloat16);
  const Buffer values(kMaxRows * 14336), scales(kMaxRows * 4), one(4);
  fill_random(one.data(), Element::kFloat32, 1, 0.01f, 3);
  for (const int64_t size : {4096, 14336}) {
    for (const int64_t rows : {1, 16, 256, 8192}) {
      for (const bool is_static : {false, true}) {
        for (auto* kernel : {ops::quantize_vector_cuda, ops::quantize_cuda}) {
          const ops::QuantizeArgs args{
              .x = operands.x().data(),
              .values = values.data<uint8_t>(),
              .scales = is_static ? nullptr : scales.data<float>(),
              .static_scale = is_static ? one.data<float>() : nullptr,
              .exponents = nullptr,
              .x_stride = size,
              .values_stride = size,
              .size = size,
              .element = Element::kBFloat16,
              .dtype = QuantDType::kFloat8E4M3,
              .group_size = size,
              .rounds_exponents = false,
          };
          constexpr int kRepeats = 10;
          const double us = time_graph(
                                [&](gpuStream_t stream) {
                                  for (int i = 0; i < kRepeats; ++i) kernel(args, rows, stream);
                                },
                                7) /
                            kRepeats;
          std::printf("quant %s %s [%5d, %5d]: %7.2f us %5.1f %% of copy\n",
                      kernel == ops::quantize_vector_cuda ? "vector" : "cuda  ",
                      is_static ? "static   " : "per token",
                      static_cast<int>(rows),
                      static_cast<int>(size),
                      us,
                      100 * static_cast<double>(rows * size * 3) / (us * 1e-6) / roofs.copy);
        }
      }
    }
  }
  std::fflush(stdout);
}

int run(const std::vector<std::string>& parts) {
  const auto wanted = [&](const char* part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  const Result<std::string> library = ops::gemm_library();
  std::printf("%s\n", library.ok() ? library->c_str() : library.status().message().c_str());
  if (!library.ok()) return 1;
  const Roofs roofs = measure_roofs();
  Operands operands;
  if (wanted("support")) show_support(operands);
  if (wanted("accuracy")) show_accuracy(operands);
  if (wanted("quant")) show_quant_times(operands, roofs);
  if (wanted("table")) {
    for (const Way& way : kWays) show_times(way, operands, roofs);
  }
  return 0;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run({argv + 1, argv + argc});
}
