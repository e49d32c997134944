// linear with packed weights (INT8, FP4, INT4, and FP8 in blocks), by every kind of activations,
// against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "ops/linear/linear.h"
#include "ops/linear/linear_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

constexpr QuantFormat kFloat8Block = {QuantDType::kFloat8E4M3, QuantType::kPer128x128, 128};
constexpr QuantFormat kFloat8HalfBlock = {QuantDType::kFloat8E4M3, QuantType::kPer128x128, 64};
constexpr QuantFormat kFloat8Group = {QuantDType::kFloat8E4M3, QuantType::kPer1x128, 1};
constexpr QuantFormat kInt8 = {QuantDType::kInt8, QuantType::kPerToken, 1};
constexpr QuantFormat kMxFloat4 = {QuantDType::kFloat4E2M1, QuantType::kPer1x32, 1};
constexpr QuantFormat kInt4 = {QuantDType::kInt4, QuantType::kPer1x128, 1};
constexpr QuantFormat kInt4Short = {QuantDType::kInt4, QuantType::kPer1x32, 1};

std::string name_of(const QuantFormat& format) {
  return fmt::format("{} {} of {} rows",
                     quant_dtype_name(format.dtype),
                     quant_type_name(format.granularity),
                     format.scale_rows);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }

 private:
  uint64_t state_;
};

// Bytes of which none is NaN in FP8.
void fill_bytes(const Tensor& codes, uint64_t seed) {
  Random random(seed);
  auto* data = static_cast<uint8_t*>(codes.raw_data());
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    data[i] = static_cast<uint8_t>(random.next() >> 24);
    if (codes.dtype() == DType::kFloat8E4M3 && (data[i] & 0x7f) == 0x7f) data[i] = 0x31;
  }
}

void fill_scales(const Tensor& scales, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0; i < scales.num_elements(); ++i) {
    if (scales.dtype() == DType::kUInt8) {
      scales.data<uint8_t>()[i] = static_cast<uint8_t>(119 + random.next() % 9);
    } else {
      scales.data<float>()[i] = 0.01f + 0.02f * static_cast<float>(random.next()) * 0x1p-32f;
    }
  }
}

double value_of(QuantDType dtype, const Tensor& rows, int64_t row, int64_t k) {
  const auto* data = static_cast<const uint8_t*>(rows.raw_data()) + row * rows.stride(0);
  const int nibble = data[k / 2] >> (k % 2 * 4) & 15;
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return to_float(Float8E4M3{data[k]});
    case QuantDType::kInt8:
      return static_cast<int8_t>(data[k]);
    case QuantDType::kFloat4E2M1: {
      constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      return (nibble & 8) != 0 ? -kValues[nibble & 7] : kValues[nibble & 7];
    }
    case QuantDType::kInt4:
      return nibble - 8;
  }
  return 0;
}

double scale_of(const Tensor& scales, int64_t index) {
  if (scales.dtype() == DType::kUInt8) return std::ldexp(1.0, scales.data<uint8_t>()[index] - 127);
  return scales.data<float>()[index];
}

// A weight and its dequantized values.
struct Weight {
  Tensor rows, scales;
  LinearWeight packed;
  std::vector<double> values;  // [N, K]
};

Weight make_weight(const Stream& stream,
                   const QuantFormat& format,
                   int64_t n,
                   int64_t k,
                   WeightLayout layout = preferred_weight_layout()) {
  Weight weight;
  weight.packed = make_quantized_weight(n, k, format, layout);
  const DType dtype = weight.packed.dtype();
  weight.rows = Tensor::empty({n, dtype == DType::kUInt8 ? k / 2 : k}, dtype);
  fill_bytes(weight.rows, n + k);
  const int64_t group = format.group_size(), groups = group > 0 ? (k + group - 1) / group : 0;
  const int64_t scale_rows = (n + format.scale_rows - 1) / format.scale_rows;
  weight.scales =
      Tensor::empty(groups > 0 ? Shape{scale_rows, groups} : Shape{n}, format.scale_dtype());
  fill_scales(weight.scales, n * 3 + k);
  pack_rows(stream, weight.rows, 0, weight.packed);
  pack_scales(weight.scales, 0, weight.packed);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = groups > 0 ? r / format.scale_rows * groups + i / group : r;
      weight.values.push_back(value_of(format.dtype, weight.rows, r, i) *
                              scale_of(weight.scales, at));
    }
  }
  return weight;
}

// Activations and their values.
struct Rows {
  Tensor x, scales;            // undefined scales: floats
  std::vector<double> values;  // [T, K]
};

enum class XScales { kNone, kOne, kToken, kGroup };

Rows make_rows(DType dtype, XScales kind, int64_t t, int64_t k, int64_t group) {
  Rows rows;
  const int64_t width = dtype == DType::kUInt8 ? k / 2 : k;
  const int64_t groups = kind == XScales::kGroup ? (k + group - 1) / group : 0;
  if (kind == XScales::kNone) {
    rows.x = random_tensor({t, width + 8}, dtype, t + k, 2.0f).narrow(1, 0, width);
    rows.values = values_of(rows.x);
    return rows;
  }
  const Tensor storage = Tensor::empty({t, width + 16}, dtype);
  fill_bytes(storage, t * 7 + k);
  rows.x = storage.narrow(1, 0, width);
  const Shape shape = kind == XScales::kGroup   ? Shape{t, groups}
                      : kind == XScales::kToken ? Shape{t}
                                                : Shape{1};
  rows.scales = Tensor::empty(shape, dtype == DType::kUInt8 ? DType::kUInt8 : DType::kFloat32);
  fill_scales(rows.scales, t + 11 * k);
  const QuantDType values = dtype == DType::kInt8    ? QuantDType::kInt8
                            : dtype == DType::kUInt8 ? QuantDType::kFloat4E2M1
                                                     : QuantDType::kFloat8E4M3;
  for (int64_t r = 0; r < t; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = kind == XScales::kGroup   ? r * groups + i / group
                         : kind == XScales::kToken ? r
                                                   : 0;
      rows.values.push_back(value_of(values, rows.x, r, i) * scale_of(rows.scales, at));
    }
  }
  return rows;
}

bool run(const char* variant,
         ThreadPool& pool,
         const Rows& rows,
         const LinearWeight& weight,
         const Tensor& bias,
         const Tensor& y) {
  const Stream stream(&pool);
  const LinearCall call = {rows.x, weight, bias, y, rows.scales};
  for (const LinearVariant& candidate : linear_variants()) {
    if (candidate.device != DeviceType::kCpu || variant != std::string(candidate.name)) continue;
    if (!runs(candidate, DeviceType::kCpu, call)) return false;
    Workspace measuring;
    candidate.launch(Stream::dry_run(), call, measuring);
    Workspace scratch(measuring.peak_size());
    {
      // What was there before must not count: NaN is what any product shows.
      const Workspace::Scope scope(scratch);
      const int64_t num_floats = measuring.peak_size() / dtype_size(DType::kFloat32);
      std::fill_n(scratch.tensor({num_floats}, DType::kFloat32).data<float>(), num_floats, NAN);
    }
    candidate.launch(stream, call, scratch);
    return true;
  }
  return false;
}

constexpr const char* kCpuVariants[] = {"reference", "avx2", "avx512", "amx"};

struct Case {
  QuantFormat format;
  DType x;
  XScales x_scales;
  int64_t in_features;
};

const Case kCases[] = {
    {kFloat8Block, DType::kFloat8E4M3, XScales::kGroup, 320},
    {kFloat8Block, DType::kBFloat16, XScales::kNone, 200},
    {kFloat8Block, DType::kFloat16, XScales::kNone, 131},
    {kFloat8Block, DType::kFloat32, XScales::kNone, 2432},
    {kFloat8HalfBlock, DType::kFloat8E4M3, XScales::kGroup, 192},
    {kFloat8Group, DType::kFloat8E4M3, XScales::kGroup, 513},
    {kFloat8Group, DType::kFloat32, XScales::kNone, 256},
    {kInt8, DType::kInt8, XScales::kToken, 77},
    {kInt8, DType::kInt8, XScales::kOne, 3000},
    {kInt8, DType::kBFloat16, XScales::kNone, 100},
    {kInt8, DType::kFloat16, XScales::kNone, 101},
    {kInt8, DType::kFloat32, XScales::kNone, 2100},
    {kMxFloat4, DType::kUInt8, XScales::kGroup, 352},
    {kMxFloat4, DType::kFloat8E4M3, XScales::kOne, 96},
    {kMxFloat4, DType::kFloat8E4M3, XScales::kToken, 64},
    {kMxFloat4, DType::kBFloat16, XScales::kNone, 4384},
    {kMxFloat4, DType::kFloat16, XScales::kNone, 32},
    {kMxFloat4, DType::kFloat32, XScales::kNone, 2080},
    {kInt4, DType::kBFloat16, XScales::kNone, 384},
    {kInt4, DType::kFloat32, XScales::kNone, 4352},
    {kInt4, DType::kFloat8E4M3, XScales::kToken, 256},
    {kInt4Short, DType::kFloat16, XScales::kNone, 96},
    {kInt4Short, DType::kBFloat16, XScales::kNone, 4160},
};

TEST(LinearQuantized, EveryVariantMatchesDouble) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  for (const Case& c : kCases) {
    for (const int64_t n : {64, 200}) {
      const Weight weight = make_weight(stream, c.format, n, c.in_features);
      const Tensor bias = random_tensor({n}, DType::kFloat32, 5);
      for (const int64_t t : {1, 2, 4, 7, 40}) {
        const Rows rows = make_rows(c.x, c.x_scales, t, c.in_features, c.format.group_size());
        for (const char* variant : kCpuVariants) {
          const Tensor y = Tensor::zeros({t, n + 3}, DType::kFloat32).narrow(1, 0, n);
          if (!run(variant, pool, rows, weight.packed, bias, y)) continue;
          for (int64_t r = 0; r < t; ++r) {
            for (int64_t column = 0; column < n; ++column) {
              double sum = bias.data<float>()[column], magnitude = std::abs(sum);
              for (int64_t k = 0; k < c.in_features; ++k) {
                const double product =
                    rows.values[r * c.in_features + k] * weight.values[column * c.in_features + k];
                sum += product;
                magnitude += std::abs(product);
              }
              ASSERT_NEAR(y.data<float>()[r * y.stride(0) + column], sum, 3e-6 * magnitude)
                  << variant << ", " << name_of(c.format) << ", x " << dtype_name(c.x) << " [" << t
                  << ", " << c.in_features << "] at " << r << ", " << column;
            }
          }
        }
      }
    }
  }
}

TEST(LinearQuantized, ARowHasItsOwnBitsInEveryBatch) {
  ThreadPool one(1), two(2);
  for (const Case& c : kCases) {
    const Weight weight = make_weight(Stream(&two), c.format, 200, c.in_features);
    const Rows rows = make_rows(c.x, c.x_scales, 300, c.in_features, c.format.group_size());
    for (const char* variant : kCpuVariants) {
      const Tensor all = Tensor::zeros({300, 200}, DType::kFloat32);
      if (!run(variant, two, rows, weight.packed, Tensor(), all)) continue;
      for (const int64_t t : {0, 7, 299}) {
        Rows alone = rows;
        alone.x = rows.x.narrow(0, t, 1);
        if (c.x_scales == XScales::kToken || c.x_scales == XScales::kGroup) {
          alone.scales = rows.scales.narrow(0, t, 1);
        }
        const Tensor y = Tensor::zeros({1, 200}, DType::kFloat32);
        run(variant, one, alone, weight.packed, Tensor(), y);
        ASSERT_EQ(std::memcmp(y.raw_data(), all.data<float>() + t * 200, y.num_bytes()), 0)
            << variant << ", " << name_of(c.format) << ", row " << t;
      }
    }
  }
}

// A row of zeros but for one 1 in x reads one column of the weight.
TEST(LinearQuantized, EveryRepresentableValueComesBack) {
  ThreadPool pool(1);
  for (const QuantFormat& format : {kFloat8Group, kInt8, kMxFloat4, kInt4, kInt4Short}) {
    for (const DType x_dtype : kFloatDTypes) {
      for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanels}) {
        if (layout == WeightLayout::kPanels && preferred_weight_layout() != layout) continue;
        Weight weight = make_weight(Stream(&pool), format, 256, 256, layout);
        // Row r, column k: every byte in every column.
        auto* bytes = static_cast<uint8_t*>(weight.rows.raw_data());
        for (int64_t r = 0; r < 256; ++r) {
          for (int64_t i = 0; i < weight.rows.size(1); ++i) {
            auto byte = static_cast<uint8_t>(r + i);
            if (format.dtype == QuantDType::kFloat8E4M3 && (byte & 0x7f) == 0x7f) byte = 0;
            bytes[r * weight.rows.size(1) + i] = byte;
          }
        }
        for (int64_t i = 0; i < weight.scales.num_elements(); ++i) {
          if (weight.scales.dtype() == DType::kUInt8) {
            weight.scales.data<uint8_t>()[i] = 127;
          } else {
            weight.scales.data<float>()[i] = 1.0f;
          }
        }
        pack_rows(Stream(&pool), weight.rows, 0, weight.packed);
        pack_scales(weight.scales, 0, weight.packed);
        Rows rows;
        rows.x = Tensor::zeros({256, 256}, x_dtype);
        dispatch_float(x_dtype, [&]<typename T>(TypeTag<T>) {
          for (int64_t k = 0; k < 256; ++k) rows.x.data<T>()[k * 257] = from_float<T>(1.0f);
        });
        for (const char* variant : kCpuVariants) {
          const Tensor y = Tensor::zeros({256, 256}, DType::kFloat32);
          if (!run(variant, pool, rows, weight.packed, Tensor(), y)) continue;
          for (int64_t k = 0; k < 256; ++k) {
            for (int64_t r = 0; r < 256; ++r) {
              ASSERT_EQ(y.data<float>()[k * 256 + r], value_of(format.dtype, weight.rows, r, k))
                  << variant << ", " << name_of(format) << ", row " << r << ", column " << k;
            }
          }
        }
      }
    }
  }
}

// ---- on a GPU ----------------------------------------------------------------------------------

bool run_on_gpu(const LinearVariant& variant,
                const Rows& rows,
                const LinearWeight& weight,
                const Tensor& bias,
                const Tensor& y) {
  ThreadPool pool(1);
  const std::vector<Tensor> tensors = {rows.x, rows.scales, weight.data, weight.scales, bias, y};
  return run_variant(variant.name, pool, tensors, [&](const Placed& at) {
    const auto place = [&](const Tensor& tensor) { return tensor.defined() ? at(tensor) : tensor; };
    LinearWeight placed = weight;
    placed.data = at(weight.data);
    placed.scales = at(weight.scales);
    const Tensor x = at(rows.x), bias_there = place(bias), y_there = at(y);
    const LinearCall call{x, placed, bias_there, y_there, place(rows.scales)};
    if (!runs(variant, at.stream().device().type, call)) return false;
    Workspace measuring;
    variant.launch(Stream::dry_run(at.stream().device()), call, measuring);
    Workspace scratch(at.stream(), measuring.peak_size());
    variant.launch(at.stream(), call, scratch);
    at.stream().queue().synchronize();
    return true;
  });
}

// Within one rounding to y's dtype, the error bound of float32 sums, and for each product of FP8
// tensor cores, which cut off 13 bits below the largest, that of the largest or of a group's sum.
void expect_matches_double(const Rows& rows,
                           const Weight& weight,
                           const Tensor& bias,
                           const Tensor& y,
                           bool by_tensor_cores,
                           const std::string& what) {
  const int64_t n = y.size(1), in_features = weight.packed.in_features;
  const std::vector<double> got = values_of(y), biases = values_of(bias);
  for (int64_t t = 0; t < y.size(0); ++t) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0, magnitude = 0, largest = 0, of_group = 0;
      for (int64_t k = 0; k < in_features; ++k) {
        const double product =
            rows.values[t * in_features + k] * weight.values[column * in_features + k];
        if (k % 128 == 0) of_group = 0;
        sum += product;
        of_group += product;
        magnitude += std::abs(product);
        largest = std::max({largest, std::abs(product), std::abs(of_group)});
      }
      const double exact = sum + biases[column];
      const double of_largest = by_tensor_cores ? 0x1p-13 * std::sqrt(in_features) * largest : 0;
      const double tolerance =
          half_ulp(y.dtype()) * std::abs(exact) * 1.01 + 4e-6 * magnitude + of_largest + 1e-6;
      ASSERT_NEAR(got[t * n + column], exact, tolerance) << what << " at " << t << ", " << column;
    }
  }
}

struct GpuShape {
  int64_t rows, out_features, in_features;
};

// Parts of tiles and of groups, and sizes whose rows are not aligned for copies.
constexpr GpuShape kGpuShapes[] = {
    {1, 128, 128},   {1, 200, 1536},  {3, 64, 320},    {7, 136, 131},   {8, 392, 2048},
    {16, 264, 400},  {40, 72, 400},   {24, 2000, 496}, {33, 1000, 256}, {57, 328, 2000},
    {64, 520, 1024}, {65, 136, 528},  {128, 328, 384}, {300, 200, 640}, {513, 72, 272},
    {130, 264, 512}, {97, 136, 2064}, {193, 72, 1680}, {256, 72, 768},  {257, 136, 1024},
    {3, 10560, 256}, {40, 14784, 128}};

TEST(LinearQuantized, Float8InBlocksMatchesDoubleOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  std::map<std::string, int> num_runs;
  for (const QuantFormat& format : {kFloat8Block, kFloat8HalfBlock, kFloat8Group}) {
    for (const GpuShape& shape : kGpuShapes) {
      const Weight weight = make_weight(
          Stream(&pool), format, shape.out_features, shape.in_features, WeightLayout::kRowMajor);
      const Rows rows =
          make_rows(DType::kFloat8E4M3, XScales::kGroup, shape.rows, shape.in_features, 128);
      for (const DType y_dtype : kFloatDTypes) {
        const Tensor bias = random_tensor({shape.out_features}, y_dtype, 5);
        for (const LinearVariant& variant : linear_variants()) {
          if (variant.device == DeviceType::kCpu) continue;
          const Tensor y = Tensor::zeros({shape.rows, shape.out_features + 8}, y_dtype)
                               .narrow(1, 0, shape.out_features);
          if (!run_on_gpu(variant, rows, weight.packed, bias, y)) continue;
          ++num_runs[variant.name];
          expect_matches_double(rows,
                                weight,
                                bias,
                                y,
                                std::string(variant.name) != "quantized",
                                fmt::format("{}, {}, y {} [{}, {}] x {} rows",
                                            variant.name,
                                            name_of(format),
                                            dtype_name(y_dtype),
                                            shape.out_features,
                                            shape.in_features,
                                            shape.rows));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  for (const auto& [name, count] : num_runs) RecordProperty(name, count);
  EXPECT_GT(num_runs["quantized"], 0);
  EXPECT_GT(num_runs["skinny"], 0) << "no Hopper GPU?";
  EXPECT_GT(num_runs["split-k"], 0) << "no Hopper GPU?";
  EXPECT_GT(num_runs["blocks"], 0) << "no Hopper GPU?";
  EXPECT_GT(num_runs["blocks-divided"], 0) << "no Hopper GPU?";
}

// Whatever tile its number of rows makes the kernel choose.
TEST(LinearQuantized, ARowOfBlocksHasItsOwnBitsInEveryBatchOnTheGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  const Weight weight =
      make_weight(Stream(&pool), kFloat8Block, 1000, 1040, WeightLayout::kRowMajor);
  const Rows rows = make_rows(DType::kFloat8E4M3, XScales::kGroup, 1100, 1040, 128);
  const Tensor bias = random_tensor({1000}, DType::kBFloat16, 5);
  for (const LinearVariant& variant : linear_variants()) {
    if (variant.device == DeviceType::kCpu || variant.row_order == RowOrder::kMixed) continue;
    const Tensor all = Tensor::zeros({1100, 1000}, DType::kBFloat16);
    if (!run_on_gpu(variant, rows, weight.packed, bias, all)) continue;
    for (const auto& [first, count] : {std::pair{0, 1}, {77, 5}, {130, 64}, {500, 129}, {3, 700}}) {
      Rows part = rows;
      part.x = rows.x.narrow(0, first, count);
      part.scales = rows.scales.narrow(0, first, count);
      const Tensor y = Tensor::zeros({count, 1000}, DType::kBFloat16);
      ASSERT_TRUE(run_on_gpu(variant, part, weight.packed, bias, y));
      EXPECT_EQ(std::memcmp(y.raw_data(), all.narrow(0, first, count).raw_data(), y.num_bytes()), 0)
          << variant.name << ", rows from " << first;
    }
  }
}

TEST(LinearQuantized, PublicCallsPickAVariant) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const Weight weight = make_weight(stream, kMxFloat4, 64, 64);
  const Rows wide = make_rows(DType::kBFloat16, XScales::kNone, 3, 64, 32);
  const Rows codes = make_rows(DType::kUInt8, XScales::kGroup, 3, 64, 32);
  Workspace scratch(1 << 20);
  const Tensor y = Tensor::zeros({3, 64}, DType::kBFloat16);
  const Tensor expected = Tensor::zeros({3, 64}, DType::kBFloat16);
  linear(stream, wide.x, weight.packed, Tensor(), y, scratch);
  run("reference", pool, wide, weight.packed, Tensor(), expected);
  expect_close(y, values_of(expected), 0x1p-7, 1e-6, "wide");
  linear(stream, codes.x, codes.scales, weight.packed, Tensor(), y, scratch);
  run("reference", pool, codes, weight.packed, Tensor(), expected);
  expect_close(y, values_of(expected), 0x1p-7, 1e-6, "codes");
}

TEST(LinearQuantizedDeathTest, RefusesActivationsThatTheWeightDoesNotMeet) {
  ThreadPool pool(1);
  const Weight weight = make_weight(Stream(&pool), kInt8, 64, 64);
  const Rows rows = make_rows(DType::kFloat8E4M3, XScales::kToken, 1, 64, 0);
  const Tensor y = Tensor::zeros({1, 64}, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(linear(Stream(&pool), rows.x, rows.scales, weight.packed, Tensor(), y, scratch),
               "takes");
}

}  // namespace
}  // namespace atom::ops
