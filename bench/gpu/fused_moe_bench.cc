// Checks and times the experts of a mixture of experts by all kernels that take them.
//
// usage: fused_moe_gpu_bench [check|time|repeat] [SHAPE|FORMAT|KERNEL|TOKENS ...]
//
// Names of shapes, formats, kernels and numbers of tokens limit each what is run. Checks compare
// tokens with sums in double, and with themselves alone and in another run. Repetitions, of layers
// that no cache holds, one behind the other as a model has them, must all give the same: what
// blocks that wait for each other get wrong is seldom and depends on how long memory takes. Timings
// run the experts of several layers in one captured graph, in percent of the read bandwidth
// measured in the same run, of what the tokens' choices make them read.
#include <algorithm>
#include <string>

#include "moe_case.h"

namespace atom::bench {
namespace {

using namespace ops;
using Kind = GatedActivationKind;

constexpr MoeFormat kFormats[] = {
    {"bf16", ExpertFormat::kAsX, MoeScales::kNone},
    {"fp8-block", ExpertFormat::kFloat8, MoeScales::kBlocks},
    {"fp8-channel", ExpertFormat::kFloat8, MoeScales::kChannels},
    {"mxfp4", ExpertFormat::kFloat4, MoeScales::kNone},
    {"mxfp4-images", ExpertFormat::kFloat4Images, MoeScales::kNone},
    {"int8", ExpertFormat::kInt8, MoeScales::kChannels},
    {"int4", ExpertFormat::kInt4, MoeScales::kGroups},
};

struct ShapeFormats {
  MoeShape shape;
  std::vector<std::string> formats;  // in which it is run when none is named
};

const ShapeFormats kShapes[] = {
    {{"qwen3-30b-a3b", 128, 8, 2048, 768, {Kind::kSilu, false}, false},
     {"bf16", "fp8-block", "mxfp4", "mxfp4-images", "int8", "int4"}},
    {{"gpt-oss-20b", 32, 4, 2880, 2880, {Kind::kClampedSwiGlu, true}, true},
     {"bf16", "mxfp4", "mxfp4-images"}},
    {{"gpt-oss-120b", 128, 4, 2880, 2880, {Kind::kClampedSwiGlu, true}, true},
     {"mxfp4", "mxfp4-images"}},
    {{"glm-4.5-air", 128, 8, 4096, 1408, {Kind::kSilu, false}, false}, {"bf16", "fp8-channel"}},
    {{"mixtral-8x7b", 8, 2, 4096, 14336, {Kind::kSilu, false}, false}, {"bf16", "fp8-channel"}},
    {{"qwen3-next", 512, 10, 2048, 512, {Kind::kSilu, false}, false}, {"fp8-block"}},
    {{"kimi-k2", 384, 8, 7168, 2048, {Kind::kSilu, false}, false}, {"int4"}},
    {{"deepseek-v3", 256, 8, 7168, 2048, {Kind::kSilu, false}, false}, {"fp8-block"}},
    // Many of the tokens choose the same experts.
    {{"crowded", 8, 6, 1152, 384, {Kind::kClampedSwiGlu, false, 1.702f, 7}, false},
     {"fp8-block", "fp8-channel"}},
};

constexpr MoeKernel kServing[] = {MoeKernel::kStream,
                                  MoeKernel::kRows,
                                  MoeKernel::kTerms,
                                  MoeKernel::kRowsEarly,
                                  MoeKernel::kOne,
                                  MoeKernel::kSkinny,
                                  MoeKernel::kSkinnyRows,
                                  MoeKernel::kSkinnyCodes,
                                  MoeKernel::kWide,
                                  MoeKernel::kWhole,
                                  MoeKernel::kMixed};

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
  // Those that are named, or all that serve.
  std::vector<MoeKernel> kernels() const {
    std::vector<MoeKernel> kernels;
    for (const MoeKernel kernel : kServing) {
      if (has(name_of(kernel))) kernels.push_back(kernel);
    }
    if (kernels.empty()) kernels.assign(std::begin(kServing), std::end(kServing));
    return kernels;
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

bool is_behind_norm(MoeKernel kernel) {
  return kernel == MoeKernel::kSkinnyRows || kernel == MoeKernel::kSkinnyCodes;
}

bool reads_codes(MoeKernel kernel, const MoeFormat& format) {
  if (kernel == MoeKernel::kMixed) return true;
  return (kernel == MoeKernel::kWide || kernel == MoeKernel::kWhole ||
          kernel == MoeKernel::kSkinny || is_behind_norm(kernel) || kernel == MoeKernel::kOne) &&
         format.format == ExpertFormat::kFloat8;
}

// Whether sums are added in parts that depend on how many tokens there are.
bool mixes_tokens(MoeKernel kernel, const MoeFormat& format) {
  return kernel == MoeKernel::kOne && format.format == ExpertFormat::kFloat4Images;
}

bool rounds_results(MoeKernel kernel) {
  return kernel == MoeKernel::kRows || kernel == MoeKernel::kRowsEarly ||
         kernel == MoeKernel::kTerms || kernel == MoeKernel::kWide || kernel == MoeKernel::kWhole ||
         kernel == MoeKernel::kMixed;
}

// ---- checks ------------------------------------------------------------------------------------

std::vector<uint16_t> results_of(const MoeLayers& layers, MoeKernel kernel, int count) {
  ATOM_BENCH_CHECK(layers.launch(kernel, 0, 0, count, nullptr));
  return layers.result(count);
}

// By tiles of all sizes, some of which are not full. Results of the same tokens are the same in
// another run, and of a kernel of which a row depends on itself alone with other tokens.
int check_kernel(const MoeLayers& layers, MoeKernel kernel, const std::vector<int>& counts) {
  Verdict verdict;
  bool repeats = true, is_its_own = true;
  std::vector<uint16_t> first;
  for (const int count : counts) {
    if (!layers.fits(kernel, count)) continue;
    const auto y = results_of(layers, kernel, count);
    const auto expected = layers.expected(0,
                                          count - 1,
                                          {.codes = reads_codes(kernel, layers.format()),
                                           .of_norm = is_behind_norm(kernel),
                                           .rounds_results = rounds_results(kernel)});
    const int64_t size = layers.shape().hidden_size;
    for (int64_t i = 0; i < size; ++i) {
      const double got = element_value(Element::kBFloat16, y.data(), (count - 1) * size + i);
      verdict.see(got, expected.y[i], expected.allowed[i]);
    }
    repeats &= results_of(layers, kernel, count) == y;
    if (kernel == MoeKernel::kSkinnyCodes) {
      // The kernel that quantizes x gives the same.
      repeats &= results_of(layers, MoeKernel::kSkinnyRows, count) == y;
    }
    if (first.empty()) first.assign(y.begin(), y.begin() + size);
    is_its_own &=
        mixes_tokens(kernel, layers.format()) || std::equal(first.begin(), first.end(), y.begin());
  }
  if (first.empty()) return 0;
  const std::string what = std::string("moe ") + name_of(kernel) + " " + layers.shape().name + " " +
                           layers.format().name;
  const int failed = verdict.print(what.c_str());
  if (!repeats) std::printf("%s does not repeat: FAIL\n", what.c_str());
  if (!is_its_own) std::printf("%s depends on other tokens: FAIL\n", what.c_str());
  std::fflush(stdout);
  return failed + (repeats ? 0 : 1) + (is_its_own ? 0 : 1);
}

int check(const MoeShape& shape, const MoeFormat& format, const Selection& selection) {
  const int per_token = std::max(1, shape.num_experts / shape.top_k);
  std::vector<int> counts = selection.counts;
  if (counts.empty()) {
    counts = {1, 2, 5, 8, 9, 16, 31, 64, 65, 24 * per_token, 40 * per_token, 200 * per_token};
  }
  const MoeLayers layers(shape, format, 1, *std::max_element(counts.begin(), counts.end()));
  int failed = 0;
  for (const MoeKernel kernel : selection.kernels()) failed += check_kernel(layers, kernel, counts);
  return failed;
}

// ---- repetitions -------------------------------------------------------------------------------

// How many of kRounds runs of all layers in a row left another result of the last one than the
// first did.
int repeat_kernel(const MoeLayers& layers, MoeKernel kernel, const std::vector<int>& counts) {
  constexpr int kRounds = 200;
  int failed = 0;
  for (const int count : counts) {
    if (!layers.fits(kernel, count)) continue;
    std::vector<uint16_t> first;
    int num_others = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int layer = 0; layer < layers.num_layers(); ++layer) {
        ATOM_BENCH_CHECK(layers.launch(kernel, layer, 0, count, nullptr));
      }
      const auto y = layers.result(count);
      if (round == 0) first = y;
      num_others += y == first ? 0 : 1;
    }
    failed += num_others > 0 ? 1 : 0;
    std::printf("moe %s %s %s M=%d: %d of %d runs differ%s\n",
                name_of(kernel),
                layers.shape().name,
                layers.format().name,
                count,
                num_others,
                kRounds,
                num_others > 0 ? ": FAIL" : "");
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

void time_tokens(const MoeLayers& layers,
                 int count,
                 const std::vector<MoeKernel>& kernels,
                 const Roofs& roofs) {
  const MoeShape& shape = layers.shape();
  const double bytes = static_cast<double>(layers.active_size(count)) / layers.num_layers();
  const auto active = static_cast<double>(layers.num_active(0, count));
  std::printf("moe %-13s %-9s M=%-5d %.0f x %.1f:",
              shape.name,
              layers.format().name,
              count,
              active,
              count * shape.top_k / active);
  for (const MoeKernel kernel : kernels) {
    if (!layers.fits(kernel, count)) continue;
    const double us = time_layers(layers, [&](int layer, gpuStream_t stream) {
      ATOM_BENCH_CHECK(layers.launch(kernel, layer, 0, count, stream));
    });
    std::printf(" %s %.1f us %.1f %%", name_of(kernel), us, 100 * bytes / (us * 1e-6) / roofs.read);
    if (count < 1024) continue;
    const double flops = 6.0 * count * shape.top_k * shape.hidden_size * shape.intermediate_size;
    std::printf(" %.0f TFLOP/s", flops / us * 1e-6);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// As many layers as no cache holds anything of, for few tokens too.
MoeLayers uncached_layers(const MoeShape& shape,
                          const MoeFormat& format,
                          const std::vector<int>& counts) {
  constexpr int64_t kMostLayers = 8, kMostBytes = int64_t{40} << 30;
  const auto num_layers = static_cast<int>(
      std::clamp<int64_t>(kMostBytes / MoeLayers::layer_size(shape, format), 1, kMostLayers));
  return MoeLayers(shape, format, num_layers, *std::max_element(counts.begin(), counts.end()));
}

int repeat(const MoeShape& shape, const MoeFormat& format, const Selection& selection) {
  std::vector<int> counts = selection.counts;
  if (counts.empty()) counts = {1, 2, 8, 24, 40, 64, 80};
  const MoeLayers layers = uncached_layers(shape, format, counts);
  int failed = 0;
  for (const MoeKernel kernel : selection.kernels())
    failed += repeat_kernel(layers, kernel, counts);
  return failed;
}

void time_case(const MoeShape& shape,
               const MoeFormat& format,
               const Selection& selection,
               const Roofs& roofs) {
  std::vector<int> counts = selection.counts;
  if (counts.empty()) counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 4096};
  const MoeLayers layers = uncached_layers(shape, format, counts);
  for (const int count : counts) time_tokens(layers, count, selection.kernels(), roofs);
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool has_mode = mode == "check" || mode == "time" || mode == "repeat";
  Selection selection;
  for (int i = has_mode ? 2 : 1; i < argc; ++i) {
    const int count = std::atoi(argv[i]);
    if (count > 0) {
      selection.counts.push_back(count);
    } else {
      selection.names.emplace_back(argv[i]);
    }
  }
  int failed = 0;
  if (mode == "repeat") {
    for_cases(selection, [&](const MoeShape& shape, const MoeFormat& format) {
      failed += repeat(shape, format, selection);
    });
    return failed == 0 ? 0 : 1;
  }
  if (mode != "time") {
    for_cases(selection, [&](const MoeShape& shape, const MoeFormat& format) {
      failed += check(shape, format, selection);
    });
    std::printf("fused_moe_gpu_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  }
  if (mode != "check") {
    const Roofs roofs = measure_roofs();
    for_cases(selection, [&](const MoeShape& shape, const MoeFormat& format) {
      time_case(shape, format, selection, roofs);
    });
  }
  return failed == 0 ? 0 : 1;
}
