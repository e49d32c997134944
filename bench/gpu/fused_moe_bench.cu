// Checks and times the experts of a mixture of experts for the few tokens of a decode step.
//
// usage: fused_moe_gpu_bench [check|time [TOKENS...]]
//
// Checks compare tokens with sums in double, and with themselves alone and in another run. Timings
// run the experts of LAYERS layers in one captured graph, in percent of the read bandwidth measured
// in the same run, of what the tokens' choices make them read.
#include <algorithm>
#include <cstring>
#include <string>

#include "moe_case.h"
#include "ops/fused_moe/moe_stream.h"

namespace atom::bench {
namespace {

using namespace ops;
using Kind = GatedActivationKind;

constexpr MoeShape kShapes[] = {
    {"qwen3-30b-a3b", 128, 8, 2048, 768, {Kind::kSilu, false}, false},
    {"gpt-oss-20b", 32, 4, 2880, 2880, {Kind::kClampedSwiGlu, true}, true},
    {"glm-4.5-air", 128, 8, 4096, 1408, {Kind::kSilu, false}, false},
};

constexpr MoeFormat kFormats[] = {
    {"bf16", ExpertFormat::kAsX, MoeScales::kNone},
    {"fp8-block", ExpertFormat::kFloat8, MoeScales::kBlocks},
    {"fp8-channel", ExpertFormat::kFloat8, MoeScales::kChannels},
    {"mxfp4", ExpertFormat::kFloat4, MoeScales::kNone},
};

// ---- checks ------------------------------------------------------------------------------------

void run(const MoeLayers& layers, int layer, int first, int count, gpuStream_t stream = nullptr) {
  const FusedMoeGpuCall call = layers.call(layer, first, count);
  if (!fits_moe_stream(call)) {
    std::printf("moe %s %s does not fit\n", layers.shape().name, layers.format().name);
    std::exit(1);
  }
  ATOM_BENCH_CHECK(launch_moe_stream(call, layers.scratch(), true, stream));
}

int check(const MoeShape& shape, const MoeFormat& format) {
  constexpr int kMostTokens = 64;
  const MoeLayers layers(shape, format, 1, kMostTokens);
  Verdict verdict;
  bool repeats = true, is_its_own = true;
  run(layers, 0, 0, kMostTokens);
  const auto all = layers.result(kMostTokens);
  for (const int token : {0, kMostTokens - 1}) {
    const auto expected = layers.expected(0, token);
    for (int i = 0; i < shape.hidden_size; ++i) {
      const double got =
          element_value(Element::kBFloat16, all.data(), int64_t{token} * shape.hidden_size + i);
      verdict.see(got, expected.y[i], expected.allowed[i]);
    }
  }
  for (const int count : {64, 1, 2, 5, 8, 9, 16, 31, 63}) {
    run(layers, 0, 0, count);
    const auto some = layers.result(count);
    const bool same = std::memcmp(some.data(), all.data(), some.size() * 2) == 0;
    (count == kMostTokens ? repeats : is_its_own) &= same;
  }
  const std::string what = std::string("moe ") + shape.name + " " + format.name;
  const int failed = verdict.print(what.c_str());
  if (!repeats) std::printf("%s does not repeat: FAIL\n", what.c_str());
  if (!is_its_own) std::printf("%s depends on other tokens: FAIL\n", what.c_str());
  std::fflush(stdout);
  return failed + (repeats ? 0 : 1) + (is_its_own ? 0 : 1);
}

// ---- timing ------------------------------------------------------------------------------------

// Of every layer.
template <typename Run>
double time_layers(const MoeLayers& layers, Run&& run_layer) {
  constexpr int kRuns = 9;
  return time_graph(
      [&](gpuStream_t stream) {
        for (int layer = 0; layer < layers.num_layers(); ++layer) run_layer(layer, stream);
      },
      kRuns);
}

void time_tokens(const MoeLayers& layers, int count, const Roofs& roofs) {
  const double us = time_layers(
      layers, [&](int layer, gpuStream_t stream) { run(layers, layer, 0, count, stream); });
  const auto time_matrix = [&](bool is_gate_up) {
    return time_layers(layers, [&](int layer, gpuStream_t stream) {
      ATOM_BENCH_CHECK(launch_moe_stream_matrix(
          layers.call(layer, 0, count), layers.scratch(), is_gate_up, true, stream));
    });
  };
  const double gate_up_us = time_matrix(true), down_us = time_matrix(false);
  const auto bytes = static_cast<double>(layers.active_size(count));
  const auto percent = [&](double share, double time) {
    return 100 * share * bytes / (time * 1e-6) / roofs.read;
  };
  const double active = static_cast<double>(layers.num_active(0, count));
  std::printf(
      "moe %-14s %-11s M=%-2d: %7.1f us a layer, %5.1f %% (gate_up %6.1f us %5.1f %%, down %6.1f "
      "us "
      "%5.1f %%), %.0f experts, %.2f tokens each\n",
      layers.shape().name,
      layers.format().name,
      count,
      us / layers.num_layers(),
      percent(1, us),
      gate_up_us / layers.num_layers(),
      percent(2.0 / 3, gate_up_us),
      down_us / layers.num_layers(),
      percent(1.0 / 3, down_us),
      active,
      count * layers.shape().top_k / active);
  std::fflush(stdout);
}

void time_all(const std::vector<int>& counts) {
  const Roofs roofs = measure_roofs();
  constexpr int kLayers = 8;
  for (const MoeShape& shape : kShapes) {
    for (const MoeFormat& format : kFormats) {
      const MoeLayers layers(
          shape, format, kLayers, *std::max_element(counts.begin(), counts.end()));
      for (const int count : counts) time_tokens(layers, count, roofs);
    }
  }
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  std::vector<int> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  if (counts.empty()) counts = {1, 2, 4, 8, 16, 32, 64};
  int failed = 0;
  if (mode != "time") {
    for (const auto& shape : kShapes) {
      for (const auto& format : kFormats) failed += check(shape, format);
    }
    std::printf("fused_moe_gpu_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") time_all(counts);
  return failed == 0 ? 0 : 1;
}
