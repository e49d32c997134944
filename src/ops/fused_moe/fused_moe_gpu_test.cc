#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "ops/fused_moe/expert_images.h"
#include "ops/fused_moe/moe_gpu_runs.h"

namespace atom::ops {
namespace {

using namespace moe_test;

constexpr Sizes kGpuSizes[] = {
    {1, 8, 16, 256, 64},
    {8, 4, 8, 2048, 768},
    {9, 2, 3, 1536, 136},
    {64, 4, 8, 640, 96},
    {200, 2, 5, 128, 48},
    {9, 11, 16, 576, 64},
};

struct Case {
  Sizes sizes;
  std::optional<QuantFormat> format;
};

std::vector<Case> cases_of_floats() {
  std::vector<Case> cases;
  for (const auto some : {std::span<const Sizes>(kSizes), std::span<const Sizes>(kGpuSizes)}) {
    for (const Sizes& sizes : some) cases.push_back({sizes, {}});
  }
  return cases;
}

constexpr Sizes kSizesOfOne[] = {
    {1, 8, 9, 320, 192},
    {1, 3, 5, 2880, 448},
    {1, 1, 4, 64, 3072},
    {1, 5, 6, 192, 2880},
    {1, 8, 8, 128, 3072},
    {1, 4, 5, 2880, 1440},
    {1, 3, 4, 352, 96},
};

std::vector<Case> cases_of_formats() {
  std::vector<Case> cases;
  for (const QuantFormat& format : kFormats) {
    cases.push_back({{8, 4, 8, 512, 256}, format});
    cases.push_back({{70, 2, 5, 128, 384}, format});
    // Tiles of few, of more and of many rows, whose last ones are not full.
    cases.push_back({{70, 1, 32, 256, 128}, format});
    cases.push_back({{70, 2, 8, 384, 256}, format});
    cases.push_back({{70, 4, 5, 256, 128}, format});
  }
  // Groups of 32 columns that are no whole chunks of 128.
  cases.push_back({{70, 2, 3, 320, 192}, kFormats[3]});
  cases.push_back({{70, 2, 2, 448, 320}, kFormats[3]});
  // An odd number of them.
  cases.push_back({{9, 4, 8, 352, 1440}, kFormats[3]});
  cases.push_back({{70, 2, 3, 320, 160}, kFormats[3]});
  // As many rows of an expert as tiles of 96 take best.
  cases.push_back({{256, 1, 1, 288, 96}, kFormats[3]});
  // One token: experts in pairs and one alone, chunks that end in the middle, more tiles of a block
  // than wait for each other.
  for (const Sizes& sizes : kSizesOfOne) cases.push_back({sizes, kFormats[3]});
  return cases;
}

// Hundreds of rows of an expert: tiles of both warpgroups, of one and of none, rows that are no
// whole box, outputs that are no whole tile, more than one tile of an expert.
constexpr Sizes kManyRowsSizes[] = {
    {330, 2, 3, 128, 128},
    {600, 1, 3, 384, 128},
    {300, 2, 2, 256, 256},
};

// Experts with one token, with more than one instruction takes, with none, and rows of more than 32
// scales; more choices of a token than are added at once, and than a warp has lanes; one token in
// parts of rows, as wide as experts of one are, by experts of which a stage has five and three, and
// with more tiles of either matrix than wait for each other.
constexpr Sizes kCrowdedSizes[] = {
    {1, 8, 16, 256, 128},
    {64, 6, 8, 384, 256},
    {64, 2, 2, 128, 128},
    {12, 2, 300, 256, 384},
    {200, 3, 40, 256, 128},
    {5, 2, 3, 4224, 128},
    {7, 11, 40, 384, 128},
    {3, 35, 48, 128, 128},
    {1, 5, 12, 2432, 384},
    {1, 3, 4, 2176, 2048},
    {1, 8, 9, 1152, 768},
    {1, 10, 12, 128, 1024},
    {1, 2, 3, 12288, 128},
};

// x quantized before is as x that the kernel quantizes.
void expect_same_of_given_codes(const FusedMoeVariant& variant,
                                const Layer& layer,
                                const StackedWeights& gate_up,
                                const StackedWeights& down,
                                const Tensor& y) {
  Layer coded = layer;
  coded.code_x();
  const Tensor again = Tensor::zeros({y.size(0), y.stride(0)}, y.dtype()).narrow(1, 0, y.size(1));
  ASSERT_TRUE(run_on_gpu(variant, coded, gate_up, down, again)) << variant.name;
  ASSERT_EQ(values_of(again), values_of(y)) << variant.name << " " << layer.x.to_string();
}

bool takes_x_codes(const FusedMoeVariant& variant) {
  return std::string_view(variant.name) != "mixed";
}

// How many variants that read codes, or those that do not, took the case. The test's properties say
// how many each took.
int check_variants(const Case& c, const Options& options, bool codes) {
  const Layer layer(c.sizes, options);
  const Expected expected = expected_of(layer);
  int num_runs = 0;
  for (const WeightLayout layout : layouts_of(c.sizes, c.format)) {
    const StackedWeights gate_up(layer.gate_up, layer.gate_up_rows, layout);
    const StackedWeights down(layer.down, layer.down_rows, layout);
    for (const FusedMoeVariant& variant : fused_moe_variants()) {
      if (variant.device == DeviceType::kCpu || reads_codes(variant) != codes) continue;
      // Some y have rows that are not aligned to vectors.
      const int64_t stride = c.sizes.hidden_size + static_cast<int64_t>(options.seed % 2);
      const Tensor y = Tensor::zeros({c.sizes.num_tokens, stride}, options.dtype)
                           .narrow(1, 0, c.sizes.hidden_size);
      if (!run_on_gpu(variant, layer, gate_up, down, y)) continue;
      ++num_runs;
      static std::map<std::string, int> runs_of;
      const std::string name =
          std::string(variant.name) + (layout == WeightLayout::kImages ? "-images" : "");
      ::testing::Test::RecordProperty(name, ++runs_of[name]);
      expect_matches(expected, y, name + " " + layer.x.to_string());
      if (codes && takes_x_codes(variant)) {
        expect_same_of_given_codes(variant, layer, gate_up, down, y);
      }
    }
  }
  return num_runs;
}

// Variants that must be asked for are when ATOM_OP_VARIANT names them.
TEST(FusedMoe, EveryVariantMatchesDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  std::vector<Case> cases = cases_of_floats();
  for (const Case& c : cases_of_formats()) cases.push_back(c);
  uint64_t seed = 1;
  int num_runs = 0;
  for (const Case& c : cases) {
    for (const DType dtype : kFloatDTypes) {
      Options options{.dtype = dtype, .format = c.format, .activation = kActivations[++seed % 6]};
      options.seed = seed;
      options.has_bias = seed % 3 != 0;
      options.is_part = seed % 2 == 0 && c.sizes.num_experts > 1;
      num_runs += check_variants(c, options, false);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(num_runs, static_cast<int>(cases.size()) * 3);
}

// By the kernels that quantize x and what is between the matrices, of which at least so many take a
// case.
void check_codes_of_float8(const std::vector<Case>& cases, int (*least_runs)(const Sizes&)) {
  uint64_t seed = 1;
  for (const Case& c : cases) {
    for (const GatedActivation& activation : {kActivations[0], kActivations[5]}) {
      Options options{.dtype = DType::kBFloat16, .format = c.format, .activation = activation};
      options.input = {QuantType::kPer1x128};
      // The matrix units cut products off.
      options.doubt = 1e-3;
      options.cuts = true;
      options.seed = ++seed;
      options.is_part = seed % 2 == 0;
      const int num_runs = check_variants(c, options, true);
      if (::testing::Test::HasFatalFailure()) return;
      EXPECT_GE(num_runs, forced_variant("fused_moe").empty() ? least_runs(c.sizes) : 1);
    }
  }
}

// In all that they take.
TEST(FusedMoe, CodesOfFloat8MatchDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  std::vector<Case> cases;
  for (const Case& c : cases_of_formats()) {
    if (c.format->dtype == QuantDType::kFloat8E4M3) cases.push_back(c);
  }
  for (const QuantFormat& format : {kFormats[0], kFormats[1]}) {
    for (const Sizes& sizes : kCrowdedSizes) cases.push_back({sizes, format});
    for (const Sizes& sizes : kManyRowsSizes) cases.push_back({sizes, format});
  }
  check_codes_of_float8(cases, [](const Sizes& sizes) { return sizes.num_tokens > 64 ? 2 : 1; });
}

// Two to four tokens: experts that all of them share and that are one's alone, tokens some of whose
// experts are elsewhere, more tiles of a block than wait for each other.
TEST(FusedMoe, CodesOfFloat8OfFewTokensMatchDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  constexpr Sizes kFewTokensSizes[] = {{2, 8, 64, 256, 128},
                                       {2, 5, 12, 2432, 384},
                                       {3, 2, 2, 1152, 768},
                                       {3, 9, 40, 128, 1408},
                                       {4, 10, 24, 512, 256},
                                       {4, 1, 3, 4096, 128}};
  std::vector<Case> cases;
  for (const QuantFormat& format : {kFormats[0], kFormats[1]}) {
    for (const Sizes& sizes : kFewTokensSizes) cases.push_back({sizes, format});
  }
  // "one" and "skinny".
  check_codes_of_float8(cases, [](const Sizes&) { return 2; });
}

// Experts of whose rows whole tiles of both sizes are made, more and fewer; columns that end in the
// middle of a chunk, rows in the middle of a tile, an even number of chunks.
constexpr Sizes kMixedSizes[] = {
    {200, 1, 2, 128, 64},
    {330, 2, 3, 192, 320},
    {200, 3, 3, 448, 192},
    {370, 2, 2, 256, 128},
    {110, 1, 1, 2880, 128},
};

// MXFP4 by x and what is between the matrices in codes.
TEST(FusedMoe, CodesByMatricesInMxfp4MatchDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  uint64_t seed = 1;
  for (const Sizes& sizes : kMixedSizes) {
    for (const GatedActivation& activation : {kActivations[1], kActivations[4]}) {
      for (const bool is_far : {false, true}) {
        Options options{.dtype = DType::kBFloat16, .format = kFormats[3], .activation = activation};
        options.input = {QuantType::kPer1x128};
        // What the activation gives is rounded to bfloat16 before it is quantized.
        options.doubt = 1e-3 + half_ulp(DType::kBFloat16);
        options.cuts = true;
        options.seed = ++seed;
        options.has_bias = seed % 3 != 0;
        options.is_part = seed % 2 == 0;
        options.has_far_exponents = is_far;
        EXPECT_EQ(check_variants({sizes, kFormats[3]}, options, true), 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The kernels for many tokens of the other formats, in all that they take.
TEST(FusedMoe, KernelsForManyTokensMatchDoubleArithmeticOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  uint64_t seed = 1;
  std::vector<Case> cases = cases_of_formats();
  for (const Sizes& sizes : kGpuSizes) cases.push_back({sizes, {}});
  for (const Case& c : cases) {
    const bool is_odd = seed % 4 >= 2;
    for (const int activation : {is_odd ? 1 : 0, is_odd ? 5 : 4}) {
      Options options{
          .dtype = DType::kBFloat16, .format = c.format, .activation = kActivations[activation]};
      options.seed = ++seed;
      options.has_bias = seed % 3 != 0;
      options.is_part = seed % 2 == 0;
      check_variants(c, options, false);
      if (HasFatalFailure()) return;
    }
  }
}

// Images of all that divides are read by the kernels that are made for them, and by the plain one.
TEST(FusedMoe, ImagesAreReadForAnyNumberOfTokens) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  constexpr Sizes kImageSizes[] = {{1, 4, 6, 192, 320},
                                   {1, 3, 4, 704, 128},
                                   {1, 1, 2, 64, 64},
                                   {1, 8, 9, 576, 2112},
                                   {1, 4, 5, 2880, 1088},
                                   {2, 4, 8, 256, 192},
                                   {2, 4, 5, 2880, 1088},
                                   {2, 8, 9, 64, 448},
                                   {3, 3, 4, 2880, 704},
                                   {4, 4, 6, 1088, 2880},
                                   {4, 1, 3, 192, 64},
                                   {8, 2, 9, 1088, 64},
                                   {40, 4, 20, 64, 448},
                                   {40, 2, 6, 576, 320},
                                   {300, 2, 3, 128, 192}};
  uint64_t seed = 1;
  for (const Sizes& sizes : kImageSizes) {
    ASSERT_TRUE(divides_into_images(sizes.hidden_size, sizes.intermediate_size));
    for (const int activation : {0, 1, 4, 5}) {
      Options options{
          .dtype = DType::kBFloat16, .format = kFormats[3], .activation = kActivations[activation]};
      options.seed = ++seed;
      options.has_bias = seed % 3 != 0;
      options.is_part = seed % 2 == 0;
      // "rows" and the plain kernel of both layouts at least.
      const int num_runs = check_variants({sizes, kFormats[3]}, options, false);
      if (HasFatalFailure()) return;
      EXPECT_GE(num_runs, forced_variant("fused_moe").empty() ? 4 : 0);
    }
  }
}

// Matrices in integers: rows of several slices of which the last is not full, fewer scales of a row
// than a copy has, more tokens of an expert than a group takes, and rows of x of which half as many
// fit.
TEST(FusedMoe, FewTokensReadIntegersByStreaming) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  constexpr Sizes kIntegerSizes[] = {
      {1, 4, 9, 512, 256}, {9, 3, 5, 2560, 768}, {64, 2, 2, 1024, 256}, {12, 2, 3, 7168, 512}};
  uint64_t seed = 1;
  for (const QuantFormat& format : kFormats) {
    if (format.dtype != QuantDType::kInt8 && format.dtype != QuantDType::kInt4) continue;
    for (const Sizes& sizes : kIntegerSizes) {
      const int activation = ++seed % 2 == 0 ? 0 : 4;
      Options options{
          .dtype = DType::kBFloat16, .format = format, .activation = kActivations[activation]};
      options.seed = seed;
      options.has_bias = seed % 3 == 0;
      options.is_part = seed % 4 == 0;
      // "stream" besides the plain kernel.
      EXPECT_GE(check_variants({sizes, format}, options, false), 2) << name_of(format);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace atom::ops
