#include <gtest/gtest.h>

#include "ops/fused_moe/moe_test_layer.h"
#include "ops/linear/linear_variants.h"

namespace atom::ops {
namespace {

using namespace moe_test;

// The same matrices for a GPU: row-major slices of one tensor.
class StackedWeights {
 public:
  explicit StackedWeights(const std::vector<LinearWeight>& weights) {
    const auto num_experts = static_cast<int64_t>(weights.size());
    const LinearWeight& first = weights.front();
    const int64_t rows = first.out_features, columns = first.in_features;
    data_ = Tensor::zeros({num_experts, rows, columns}, first.dtype());
    if (first.scales.defined()) scales_ = Tensor::zeros({num_experts, rows}, DType::kFloat32);
    for (int64_t e = 0; e < num_experts; ++e) {
      const Tensor data = data_.narrow(0, e, 1).view({rows, columns});
      for (int64_t row = 0; row < rows; ++row) copy_row(weights[e], row, data);
      if (scales_.defined()) {
        copy_convert(weights[e].scales, scales_.narrow(0, e, 1).view({rows}));
      }
    }
  }

  std::vector<Tensor> tensors() const { return {data_, scales_}; }
  std::vector<LinearWeight> placed(const Placed& at) const {
    std::vector<LinearWeight> weights;
    const Tensor data = at(data_), scales = scales_.defined() ? at(scales_) : Tensor();
    const int64_t rows = data.size(1), columns = data.size(2);
    for (int64_t e = 0; e < data.size(0); ++e) {
      LinearWeight weight;
      weight.data = data.narrow(0, e, 1).view({rows, columns});
      weight.out_features = rows;
      weight.in_features = columns;
      if (scales.defined()) weight.scales = scales.narrow(0, e, 1).view({rows});
      weights.push_back(weight);
    }
    return weights;
  }

 private:
  static void copy_row(const LinearWeight& weight, int64_t row, const Tensor& out) {
    const WeightRow at = weight_row(weight, row);
    const int64_t size = dtype_size(weight.dtype());
    const auto* from = static_cast<const char*>(weight.data.raw_data()) + at.begin * size;
    auto* to = static_cast<char*>(out.raw_data()) + row * out.stride(0) * size;
    for (int64_t k = 0; k < weight.in_features; ++k) {
      std::memcpy(to + k * size,
                  from + (k / at.step_size * at.step_stride + k % at.step_size) * size,
                  size);
    }
  }

  Tensor data_, scales_;
};

// False when the variant does not take the call.
bool run_on_gpu(const FusedMoeVariant& variant,
                const Layer& layer,
                const StackedWeights& gate_up,
                const StackedWeights& down,
                const Tensor& y) {
  ThreadPool pool(1);
  std::vector<Tensor> tensors = {
      layer.x, layer.ids, layer.weights, layer.gate_up_bias, layer.down_bias, layer.places, y};
  for (const StackedWeights* stack : {&gate_up, &down}) {
    for (const Tensor& tensor : stack->tensors()) tensors.push_back(tensor);
  }
  return run_variant(variant.name, pool, tensors, [&](const Placed& at) {
    const std::vector<LinearWeight> gate_up_there = gate_up.placed(at),
                                    down_there = down.placed(at);
    const auto place = [&](const Tensor& tensor) { return tensor.defined() ? at(tensor) : tensor; };
    const ExpertWeights experts{gate_up_there,
                                down_there,
                                place(layer.gate_up_bias),
                                place(layer.down_bias),
                                place(layer.places)};
    const Tensor x = at(layer.x), ids = at(layer.ids), weights = at(layer.weights), out = at(y);
    const FusedMoeCall call{x, ids, weights, experts, layer.options.activation, out};
    if (!runs(variant, at.stream().device().type, call)) return false;
    Workspace measure;
    variant.launch(Stream::dry_run(at.stream().device()), call, measure);
    Workspace scratch(at.stream(), measure.peak_size());
    variant.launch(at.stream(), call, scratch);
    at.stream().queue().synchronize();
    return true;
  });
}

constexpr Sizes kGpuSizes[] = {
    {1, 8, 16, 256, 64},
    {8, 4, 8, 2048, 768},
    {9, 2, 3, 1536, 136},
    {64, 4, 8, 640, 96},
    {200, 2, 5, 128, 48},
};

// Variants that must be asked for are when ATOM_OP_VARIANT names them.
TEST(FusedMoe, EveryVariantMatchesDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  std::vector<Sizes> all(std::begin(kSizes), std::end(kSizes));
  all.insert(all.end(), std::begin(kGpuSizes), std::end(kGpuSizes));
  uint64_t seed = 1;
  int num_runs = 0;
  for (const Sizes& sizes : all) {
    for (const DType dtype : kFloatDTypes) {
      for (const bool is_float8 : {false, true}) {
        Options options{.dtype = dtype, .activation = kActivations[++seed % 6]};
        if (is_float8) options.weight_dtype = DType::kFloat8E4M3;
        options.seed = seed;
        options.has_bias = seed % 3 != 0;
        options.is_part = seed % 2 == 0 && sizes.num_experts > 1;
        const Layer layer(sizes, options);
        const Expected expected = expected_of(layer);
        const StackedWeights gate_up(layer.gate_up), down(layer.down);
        for (const FusedMoeVariant& variant : fused_moe_variants()) {
          if (variant.device == DeviceType::kCpu) continue;
          const Tensor y = Tensor::zeros({sizes.num_tokens, sizes.hidden_size}, dtype);
          if (!run_on_gpu(variant, layer, gate_up, down, y)) continue;
          ++num_runs;
          expect_matches(expected, y, std::string(variant.name) + " " + layer.x.to_string());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GE(num_runs, static_cast<int>(all.size()) * 6);
}

}  // namespace
}  // namespace atom::ops
