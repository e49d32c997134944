#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <random>
#include <string>

#include "ops/fused_moe/moe_gpu_runs.h"

namespace atom::ops {
namespace {

using namespace moe_test;

// Miniatures of released models' layers.
struct Miniature {
  Sizes sizes;
  std::optional<QuantFormat> format;
  GatedActivation activation;
  bool has_codes, has_bias;  // of x in FP8
};

const Miniature kMiniatures[] = {
    {{300, 8, 32, 256, 128}, {}, kActivations[0], false, false},
    {{300, 8, 32, 256, 128}, kFormats[1], kActivations[0], true, false},
    {{300, 2, 8, 256, 384}, kFormats[0], kActivations[0], false, false},
    {{300, 4, 16, 352, 160}, kFormats[3], kActivations[4], false, true},
    {{300, 4, 16, 320, 192}, kFormats[3], kActivations[4], false, true},
};

// Some of a layer's tokens.
Layer part_of(const Layer& layer, int64_t first, int64_t count) {
  Layer part = layer;
  part.sizes.num_tokens = count;
  part.x = layer.x.narrow(0, first, count);
  part.ids = layer.ids.narrow(0, first, count);
  part.weights = layer.weights.narrow(0, first, count);
  return part;
}

Tensor result_on_cpu(const Layer& layer) {
  ThreadPool pool(2);
  Workspace scratch(1 << 24);
  const Tensor y =
      Tensor::zeros({layer.sizes.num_tokens, layer.sizes.hidden_size}, layer.options.dtype);
  fused_moe(Stream(&pool),
            layer.x,
            layer.ids,
            layer.weights,
            layer.experts(),
            layer.options.activation,
            y,
            scratch);
  return y;
}

// Each is within `allowed` of what it is in double.
void expect_alike(const Tensor& on_cpu,
                  const Tensor& on_gpu,
                  const std::vector<double>& allowed,
                  int64_t first,
                  const std::string& what) {
  const std::vector<double> a = values_of(on_cpu), b = values_of(on_gpu);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - b[i]), 2 * allowed[first * on_cpu.size(1) + i])
        << what << " element " << i << ": " << a[i] << " on the CPU, " << b[i] << " on the GPU";
  }
}

TEST(FusedMoe, RandomBatchesOnTheGpuAreAsOnTheCpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  constexpr int kBatches = 50;  // of each layer
  std::mt19937 random(7);
  int num_runs = 0;
  for (const Miniature& miniature : kMiniatures) {
    Options options{.dtype = DType::kBFloat16,
                    .format = miniature.format,
                    .activation = miniature.activation,
                    .has_bias = miniature.has_bias};
    const bool codes = miniature.has_codes;
    if (codes) {
      options.input = {QuantType::kPer1x128};
      options.doubt = 1e-3;
      options.cuts = true;
    }
    const Layer layer(miniature.sizes, options);
    const Expected expected = expected_of(layer);
    const WeightLayout layout = layouts_of(layer.sizes, miniature.format).back();
    const StackedWeights gate_up(layer.gate_up, layer.gate_up_rows, layout);
    const StackedWeights down(layer.down, layer.down_rows, layout);
    for (int batch = 0; batch < kBatches; ++batch) {
      const int64_t most = batch % 2 != 0 ? layer.sizes.num_tokens : batch % 4 == 0 ? 4 : 16;
      const auto count = static_cast<int64_t>(1 + random() % most);
      const auto first = static_cast<int64_t>(random() % (layer.sizes.num_tokens - count + 1));
      const Layer part = part_of(layer, first, count);
      const Tensor on_cpu = result_on_cpu(part);
      for (const FusedMoeVariant& variant : fused_moe_variants()) {
        if (variant.device == DeviceType::kCpu || reads_codes(variant) != codes) continue;
        const Tensor y = Tensor::zeros({count, layer.sizes.hidden_size}, options.dtype);
        if (!run_on_gpu(variant, part, gate_up, down, y)) continue;
        ++num_runs;
        expect_alike(on_cpu, y, expected.allowed, first, std::string(variant.name));
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(num_runs, kBatches * static_cast<int>(std::size(kMiniatures)));
}

}  // namespace
}  // namespace atom::ops
