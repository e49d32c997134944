// Checks and times the experts of a mixture of experts: the kernels for the few tokens of a decode
// step, up to 64, and those for more.
//
// usage: fused_moe_gpu_bench [check|time] [SHAPE|FORMAT|TOKENS ...]
//
// Names of shapes, of formats and numbers of tokens limit each what is run. Checks compare tokens
// with sums in double, and those of the few with themselves alone and in another run. Timings run
// the experts of several layers in one captured graph, in percent of the read bandwidth measured in
// the same run, of what the tokens' choices make them read.
#include <algorithm>
#include <cstring>
#include <string>

#include "moe_case.h"
#include "ops/fused_moe/moe_stream.h"

namespace atom::bench {
namespace {

using namespace ops;
using Kind = GatedActivationKind;

constexpr MoeFormat kFormats[] = {
    {"bf16", ExpertFormat::kAsX, MoeScales::kNone},
    {"fp8-block", ExpertFormat::kFloat8, MoeScales::kBlocks},
    {"fp8-channel", ExpertFormat::kFloat8, MoeScales::kChannels},
    {"mxfp4", ExpertFormat::kFloat4, MoeScales::kNone},
};

struct ShapeFormats {
  MoeShape shape;
  std::vector<std::string> formats;  // in which it is run when none is named
};

const ShapeFormats kShapes[] = {
    {{"qwen3-30b-a3b", 128, 8, 2048, 768, {Kind::kSilu, false}, false},
     {"bf16", "fp8-block", "mxfp4"}},
    {{"gpt-oss-20b", 32, 4, 2880, 2880, {Kind::kClampedSwiGlu, true}, true}, {"bf16", "mxfp4"}},
    {{"gpt-oss-120b", 128, 4, 2880, 2880, {Kind::kClampedSwiGlu, true}, true}, {"mxfp4"}},
    {{"glm-4.5-air", 128, 8, 4096, 1408, {Kind::kSilu, false}, false}, {"bf16", "fp8-channel"}},
    {{"mixtral-8x7b", 8, 2, 4096, 14336, {Kind::kSilu, false}, false}, {"bf16", "fp8-channel"}},
    {{"qwen3-next", 512, 10, 2048, 512, {Kind::kSilu, false}, false}, {"fp8-block"}},
    {{"deepseek-v3", 256, 8, 7168, 2048, {Kind::kSilu, false}, false}, {"fp8-block"}},
    // Many of the tokens choose the same experts.
    {{"crowded", 8, 6, 1152, 384, {Kind::kClampedSwiGlu, false, 1.702f, 7}, false},
     {"fp8-block", "fp8-channel"}},
};

// What the command line asks for.
struct Selection {
  std::vector<std::string> names;
  std::vector<int> counts;

  bool has(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  bool takes(const MoeShape& shape) const {
    return !std::any_of(std::begin(kShapes), std::end(kShapes), [&](const ShapeFormats& some) {
      return has(some.shape.name);
    }) || has(shape.name);
  }
  bool takes(const ShapeFormats& shape, const MoeFormat& format) const {
    const bool any = std::any_of(std::begin(kFormats),
                                 std::end(kFormats),
                                 [&](const MoeFormat& some) { return has(some.name); });
    return any ? has(format.name)
               : std::find(shape.formats.begin(), shape.formats.end(), format.name) !=
                     shape.formats.end();
  }
};

template <typename Visit>
void for_cases(const Selection& selection, Visit&& visit) {
  for (const ShapeFormats& shape : kShapes) {
    for (const MoeFormat& format : kFormats) {
      if (selection.takes(shape.shape) && selection.takes(shape, format)) {
        visit(shape.shape, format);
      }
    }
  }
}

bool is_many(int count) {
  return count > kMaxStreamTokens;
}

bool has_codes(const MoeFormat& format) {
  return format.format == ExpertFormat::kFloat8;
}

// ---- checks ------------------------------------------------------------------------------------

bool is_skinny(const MoeLayers& layers, int count) {
  return !is_many(count) && layers.fits_skinny(0, count);
}

void run(const MoeLayers& layers, int layer, int first, int count, gpuStream_t stream = nullptr) {
  if (is_skinny(layers, count)) {
    ATOM_BENCH_CHECK(layers.launch_skinny(layer, first, count, stream));
    return;
  }
  const FusedMoeGpuCall call = layers.call(layer, first, count);
  const bool fits = is_many(count) ? layers.fits_many(layer, count) : fits_moe_stream(call);
  if (!fits) {
    std::printf("moe %s %s does not fit\n", layers.shape().name, layers.format().name);
    std::exit(1);
  }
  ATOM_BENCH_CHECK(is_many(count) ? layers.launch_many(layer, first, count, stream)
                                  : launch_moe_stream(call, layers.scratch(), true, stream));
}

void compare(const MoeLayers& layers,
             const std::vector<uint16_t>& y,
             int token,
             bool codes,
             Verdict& verdict) {
  const auto expected = layers.expected(0, token, codes);
  const int64_t size = layers.shape().hidden_size;
  for (int64_t i = 0; i < size; ++i) {
    const double got = element_value(Element::kBFloat16, y.data(), token * size + i);
    verdict.see(got, expected.y[i], expected.allowed[i]);
  }
}

int check_few(const MoeShape& shape, const MoeFormat& format) {
  constexpr int kMostTokens = 64;
  const MoeLayers layers(shape, format, 1, kMostTokens);
  Verdict verdict;
  bool repeats = true, is_its_own = true;
  run(layers, 0, 0, kMostTokens);
  const auto all = layers.result(kMostTokens);
  const bool codes = is_skinny(layers, kMostTokens);
  for (const int token : {0, kMostTokens - 1}) compare(layers, all, token, codes, verdict);
  for (const int count : {64, 1, 2, 5, 8, 9, 16, 31, 63}) {
    run(layers, 0, 0, count);
    const auto some = layers.result(count);
    const bool same = std::memcmp(some.data(), all.data(), some.size() * 2) == 0;
    (count == kMostTokens ? repeats : is_its_own) &= same;
  }
  const std::string what = std::string("moe few ") + shape.name + " " + format.name;
  const int failed = verdict.print(what.c_str());
  if (!repeats) std::printf("%s does not repeat: FAIL\n", what.c_str());
  if (!is_its_own) std::printf("%s depends on other tokens: FAIL\n", what.c_str());
  std::fflush(stdout);
  return failed + (repeats ? 0 : 1) + (is_its_own ? 0 : 1);
}

// By tiles of all sizes, some of which are not full.
int check_many(const MoeShape& shape, const MoeFormat& format) {
  const int per_token = std::max(1, shape.num_experts / shape.top_k);
  const int counts[] = {65, 24 * per_token, 200 * per_token};
  const MoeLayers layers(shape, format, 1, counts[2]);
  if (!layers.fits_many(0, counts[0])) return 0;
  int failed = 0;
  for (const int count : counts) {
    Verdict verdict;
    run(layers, 0, 0, count);
    const auto y = layers.result(count);
    compare(layers, y, count - 1, has_codes(format), verdict);
    bool repeats = true;
    for (int i = 0; i < 2; ++i) {
      run(layers, 0, 0, count);
      repeats &= layers.result(count) == y;
    }
    const std::string what =
        std::string("moe many ") + shape.name + " " + format.name + " M=" + std::to_string(count);
    failed += verdict.print(what.c_str());
    if (!repeats) std::printf("%s does not repeat: FAIL\n", what.c_str());
    failed += repeats ? 0 : 1;
    std::fflush(stdout);
  }
  return failed;
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
             kRuns) /
         layers.num_layers();
}

void time_tokens(const MoeLayers& layers, int count, const Roofs& roofs) {
  const MoeShape& shape = layers.shape();
  const double us = time_layers(
      layers, [&](int layer, gpuStream_t stream) { run(layers, layer, 0, count, stream); });
  const double bytes = static_cast<double>(layers.active_size(count)) / layers.num_layers();
  const auto percent = [&](double share, double time) {
    return 100 * share * bytes / (time * 1e-6) / roofs.read;
  };
  const auto active = static_cast<double>(layers.num_active(0, count));
  std::printf("moe %-13s %-11s M=%-5d %8.1f us %5.1f %% of reads",
              shape.name,
              layers.format().name,
              count,
              us,
              percent(1, us));
  if (is_many(count)) {
    const double flops = 6.0 * count * shape.top_k * shape.hidden_size * shape.intermediate_size;
    std::printf(", %6.1f TFLOP/s", flops / us * 1e-6);
  } else if (!is_skinny(layers, count)) {
    const auto time_matrix = [&](bool is_gate_up) {
      return time_layers(layers, [&](int layer, gpuStream_t stream) {
        ATOM_BENCH_CHECK(launch_moe_stream_matrix(
            layers.call(layer, 0, count), layers.scratch(), is_gate_up, true, stream));
      });
    };
    const double gate_up_us = time_matrix(true), down_us = time_matrix(false);
    std::printf(" (gate_up %.1f us %.0f %%, down %.1f us %.0f %%)",
                gate_up_us,
                percent(2.0 / 3, gate_up_us),
                down_us,
                percent(1.0 / 3, down_us));
  }
  std::printf(", %.0f experts of %.2f tokens\n", active, count * shape.top_k / active);
  std::fflush(stdout);
}

void time_case(const MoeShape& shape,
               const MoeFormat& format,
               const std::vector<int>& counts,
               const Roofs& roofs) {
  // As many layers as no cache holds anything of, for few tokens too.
  constexpr int64_t kMostLayers = 8, kMostBytes = int64_t{40} << 30;
  const auto num_layers = static_cast<int>(
      std::clamp<int64_t>(kMostBytes / MoeLayers::layer_size(shape, format), 1, kMostLayers));
  const MoeLayers layers(
      shape, format, num_layers, *std::max_element(counts.begin(), counts.end()));
  for (const int count : counts) {
    if (!is_many(count) || layers.fits_many(0, count)) time_tokens(layers, count, roofs);
  }
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool has_mode = mode == "check" || mode == "time";
  Selection selection;
  for (int i = has_mode ? 2 : 1; i < argc; ++i) {
    const int count = std::atoi(argv[i]);
    if (count > 0) {
      selection.counts.push_back(count);
    } else {
      selection.names.emplace_back(argv[i]);
    }
  }
  if (selection.counts.empty()) selection.counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 4096};
  const bool checks_many = std::any_of(selection.counts.begin(), selection.counts.end(), is_many);
  int failed = 0;
  if (mode != "time") {
    for_cases(selection, [&](const MoeShape& shape, const MoeFormat& format) {
      failed += check_few(shape, format);
      if (checks_many) failed += check_many(shape, format);
    });
    std::printf("fused_moe_gpu_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") {
    const Roofs roofs = measure_roofs();
    for_cases(selection, [&](const MoeShape& shape, const MoeFormat& format) {
      time_case(shape, format, selection.counts, roofs);
    });
  }
  return failed == 0 ? 0 : 1;
}
