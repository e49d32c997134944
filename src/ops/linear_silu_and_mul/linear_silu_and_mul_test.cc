#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string_view>

#include "ops/linear/library/gemm_tuner.h"
#include "ops/linear_silu_and_mul/linear_silu_and_mul_variants.h"
#include "ops/quantize/quantize.h"
#include "ops/silu_and_mul/silu_and_mul.h"
#include "ops/test_tensors.h"
#include "tensor/device_arena.h"

namespace atom::ops {
namespace {

struct Case {
  int64_t rows, size, in_features;
  bool bias;
};

constexpr Case kCases[] = {{1, 3, 5, true},
                           {1, 24, 128, false},
                           {2, 500, 512, true},
                           {5, 56, 256, false},
                           {8, 1000, 544, true},
                           {16, 72, 4096, false},
                           {33, 40, 1024, true},
                           {64, 256, 512, false},
                           {70, 64, 64, true}};

// And of a prefill's many rows.
constexpr Case kGpuCases[] = {{1024, 136, 520, false}, {1200, 200, 1040, true}};

struct Operands {
  Tensor x, rows, bias;
};

// Small multiples of a power of two: float32 sums of their products are exact in any order, and so
// every variant has the same bits.
Tensor small_values(const Shape& shape, uint64_t seed, float step = 1.0f / 16) {
  const Tensor values = random_tensor(shape, DType::kFloat32, seed, 4.0f);
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    values.data<float>()[i] = std::round(values.data<float>()[i]) * step;
  }
  return values;
}

Tensor in_dtype(const Tensor& values, DType dtype) {
  const Tensor converted = Tensor::empty(values.shape(), dtype);
  copy_convert(values, converted);
  return converted;
}

Operands make_operands(const Case& c, DType dtype) {
  Operands of;
  of.x = in_dtype(small_values({c.rows, c.in_features}, 1), dtype);
  of.rows = in_dtype(small_values({2 * c.size, c.in_features}, 2), dtype);
  if (c.bias) of.bias = random_tensor({2 * c.size}, dtype, 5);
  return of;
}

// A weight where a stream works.
LinearWeight weight_on(const Stream& stream, const Tensor& rows) {
  if (stream.device().is_cpu()) return pack_linear_weight(stream, rows);
  LinearWeight weight =
      linear_weight_meta(rows.size(0), rows.size(1), rows.dtype(), WeightLayout::kRowMajor);
  weight.data = resident_copy(stream, rows);
  return weight;
}

// Operands where a stream works.
class PlacedOperands {
 public:
  PlacedOperands(const Stream& stream, const Operands& of)
      : x_(resident_copy(stream, of.x)),
        bias_(of.bias.defined() ? resident_copy(stream, of.bias) : of.bias),
        weight_(weight_on(stream, of.rows)) {}

  LinearCall call(const Tensor& y) const { return {x_, weight_, bias_, y, {}, true}; }

  void run_apart(const Stream& stream,
                 const Tensor& product,
                 const Tensor& y,
                 Workspace& scratch) const {
    linear(stream, x_, weight_, bias_, product, scratch);
    silu_and_mul(stream, product, y);
  }
  void run(const Stream& stream, const Tensor& y, Workspace& scratch) const {
    linear_silu_and_mul(stream, x_, weight_, bias_, y, scratch);
  }

 private:
  const Tensor x_, bias_;
  const LinearWeight weight_;
};

Tensor on_host(const Stream& stream, const Tensor& y) {
  if (stream.device().is_cpu()) return y;
  const Tensor host = Tensor::empty(y.shape(), y.dtype());
  stream.queue().copy(host.raw_data(), y.raw_data(), y.num_bytes());
  stream.queue().synchronize();
  return host;
}

std::vector<double> values_from(const Stream& stream, const Tensor& y) {
  return values_of(on_host(stream, y));
}

std::vector<uint8_t> bytes_from(const Stream& stream, const Tensor& y) {
  const Tensor host = on_host(stream, y);
  const auto* data = static_cast<const uint8_t*>(host.raw_data());
  return {data, data + host.num_bytes()};
}

// The quantized result against quantizing the activated product.
void expect_the_same_codes(const Stream& stream, const LinearCall& call, const Tensor& product) {
  const Device device = stream.device();
  const int64_t num_rows = call.y.size(0);
  const auto codes = [&] {
    return QuantizedRows{Tensor::empty(call.y.shape(), DType::kFloat8E4M3, device),
                         Tensor::empty({num_rows}, DType::kFloat32, device)};
  };
  const auto run = [&](const Stream& on, const QuantizedRows& y, Workspace& scratch) {
    linear_silu_and_mul_quantized(
        on, call.x, call.x_scales, call.weight, call.bias, call.y.dtype(), y, scratch);
  };
  const QuantizedRows expected = codes(), y = codes();
  Workspace measuring;
  run(Stream::dry_run(device), y, measuring);
  Workspace scratch(stream, measuring.peak_size());
  silu_and_mul(stream, product, Tensor(), expected, scratch);
  run(stream, y, scratch);
  EXPECT_EQ(bytes_from(stream, y.values), bytes_from(stream, expected.values));
  EXPECT_EQ(bytes_from(stream, y.scales), bytes_from(stream, expected.scales));
}

// Against the two operators, through the public call and by each variant that takes it. Returns how
// many variants did.
int expect_the_same_bits(const Stream& stream, const Case& c, DType dtype) {
  const PlacedOperands of(stream, make_operands(c, dtype));
  const auto make = [&](int64_t width) {
    return Tensor::empty({c.rows, width}, dtype, stream.device());
  };
  const Tensor product = make(2 * c.size), expected = make(c.size), y = make(c.size);
  Workspace measuring;
  of.run(Stream::dry_run(stream.device()), y, measuring);
  Workspace scratch(stream, measuring.peak_size());
  of.run_apart(stream, product, expected, scratch);
  of.run(stream, y, scratch);
  const std::string what =
      fmt::format("{} [2 x {}, {}] x {} rows", dtype_name(dtype), c.size, c.in_features, c.rows);
  EXPECT_EQ(values_from(stream, y), values_from(stream, expected)) << what;
  int num_runs = 0;
  for (const LinearVariant& variant : linear_silu_and_mul_variants()) {
    if (!runs(variant, stream.device().type, of.call(y))) continue;
    ++num_runs;
    variant.launch(stream, of.call(y), scratch);
    EXPECT_EQ(values_from(stream, y), values_from(stream, expected)) << variant.name << " " << what;
  }
  expect_the_same_codes(stream, of.call(y), product);
  return num_runs;
}

int expect_the_same_bits(const Stream& stream, std::span<const Case> cases) {
  int num_runs = 0;
  for (const Case& c : cases) {
    for (const DType dtype : kFloatDTypes) num_runs += expect_the_same_bits(stream, c, dtype);
  }
  return num_runs;
}

TEST(LinearSiluAndMul, IsWhatTheTwoOperatorsGive) {
  ThreadPool pool(2);
  EXPECT_GT(expect_the_same_bits(Stream(&pool), kCases), 0);
}

TEST(LinearSiluAndMul, IsWhatTheTwoOperatorsGiveOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  const auto queue = test_gpu()->create_queue();
  const Stream stream(&pool, queue.get());
  EXPECT_GT(expect_the_same_bits(stream, kCases), 0);
  EXPECT_GT(expect_the_same_bits(stream, kGpuCases), 0);
}

// Codes whose sums are exact also in the matrix units' fewer bits, and scales that are powers of
// two.
struct Float8Operands {
  Tensor x, x_scales, rows, row_scales;
};

Tensor as_codes(const Tensor& values) {
  ThreadPool pool(1);
  const Tensor scale = Tensor::zeros({1}, DType::kFloat32);
  scale.data<float>()[0] = 1;
  const Tensor codes = Tensor::empty(values.shape(), DType::kFloat8E4M3);
  quantize(Stream(&pool), values, {codes, scale, QuantType::kPerTensor, true});
  return codes;
}

Float8Operands make_float8_operands(const Case& c) {
  Float8Operands of;
  of.x = as_codes(small_values({c.rows, c.in_features}, 1, 0.5f));
  of.rows = as_codes(small_values({2 * c.size, c.in_features}, 2, 0.5f));
  of.x_scales = Tensor::empty({c.rows}, DType::kFloat32);
  of.row_scales = Tensor::empty({2 * c.size}, DType::kFloat32);
  for (int64_t i = 0; i < c.rows; ++i) of.x_scales.data<float>()[i] = i % 2 == 0 ? 0.5f : 0.25f;
  for (int64_t i = 0; i < 2 * c.size; ++i) {
    of.row_scales.data<float>()[i] = i % 3 == 0 ? 0.5f : 2.0f;
  }
  return of;
}

// Scales of groups of 128 values of k: of each row of x, and of blocks of 128 rows of the weight.
Float8Operands make_float8_operands_in_blocks(const Case& c) {
  Float8Operands of = make_float8_operands(c);
  const int64_t groups = (c.in_features + 127) / 128;
  const auto scales = [&](int64_t rows, float first) {
    const Tensor tensor = Tensor::empty({rows, groups}, DType::kFloat32);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      tensor.data<float>()[i] = i % 3 == 0 ? first : 0.5f;
    }
    return tensor;
  };
  of.x_scales = scales(c.rows, 0.25f);
  of.row_scales = scales((2 * c.size + 127) / 128, 2.0f);
  return of;
}

bool takes_one_kernel(const Stream& stream, const LinearCall& call) {
  for (const LinearVariant& variant : linear_silu_and_mul_variants()) {
    if (!runs(variant, stream.device().type, call)) continue;
    return variant.name != std::string_view("composed");
  }
  return false;
}

// Whether one kernel did it.
bool expect_the_same_float8_bits(const Stream& stream,
                                 const Case& c,
                                 DType dtype,
                                 const Float8Operands& of) {
  const Tensor x = resident_copy(stream, of.x), x_scales = resident_copy(stream, of.x_scales);
  LinearWeight weight = weight_on(stream, of.rows);
  weight.scales = resident_copy(stream, of.row_scales);
  if (of.row_scales.rank() == 2) weight.group_size = weight.scale_rows = 128;
  const auto make = [&](int64_t width) {
    return Tensor::empty({c.rows, width}, dtype, stream.device());
  };
  const Tensor product = make(2 * c.size), expected = make(c.size), y = make(c.size);
  Workspace measuring;
  linear_silu_and_mul(
      Stream::dry_run(stream.device()), x, x_scales, weight, Tensor(), y, measuring);
  Workspace scratch(stream, measuring.peak_size());
  linear(stream, x, x_scales, weight, Tensor(), product, scratch);
  silu_and_mul(stream, product, expected);
  linear_silu_and_mul(stream, x, x_scales, weight, Tensor(), y, scratch);
  EXPECT_EQ(values_from(stream, y), values_from(stream, expected))
      << fmt::format("[2 x {}, {}] x {} rows", c.size, c.in_features, c.rows);
  const LinearCall call = {x, weight, Tensor(), y, x_scales, true};
  expect_the_same_codes(stream, call, product);
  return takes_one_kernel(stream, call);
}

TEST(LinearSiluAndMul, InFloat8IsWhatTheTwoOperatorsGive) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  for (const Case& c : kCases) {
    if (c.bias) continue;
    const Float8Operands of = make_float8_operands(c);
    EXPECT_FALSE(expect_the_same_float8_bits(stream, c, DType::kBFloat16, of));
  }
}

TEST(LinearSiluAndMul, InFloat8IsWhatTheTwoOperatorsGiveOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  const auto queue = test_gpu()->create_queue();
  const Stream stream(&pool, queue.get());
  int num_in_one = 0;
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      if (c.bias) continue;
      num_in_one += expect_the_same_float8_bits(stream, c, dtype, make_float8_operands(c)) ? 1 : 0;
    }
  }
  EXPECT_GT(num_in_one, 0);
}

constexpr Case kBlockCases[] = {{1, 128, 256, false},
                                {5, 24, 144, false},
                                {8, 192, 400, false},
                                {33, 320, 1024, false},
                                {64, 256, 512, false},
                                {70, 64, 128, false},
                                {300, 192, 640, false}};

TEST(LinearSiluAndMul, InFloat8WithScalesOfBlocksIsWhatTheTwoOperatorsGive) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  for (const Case& c : kBlockCases) {
    const Float8Operands of = make_float8_operands_in_blocks(c);
    EXPECT_FALSE(expect_the_same_float8_bits(stream, c, DType::kBFloat16, of));
  }
}

TEST(LinearSiluAndMul, InFloat8WithScalesOfBlocksIsWhatTheTwoOperatorsGiveOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  const auto queue = test_gpu()->create_queue();
  const Stream stream(&pool, queue.get());
  int num_in_one = 0;
  for (const Case& c : kBlockCases) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const Float8Operands of = make_float8_operands_in_blocks(c);
      num_in_one += expect_the_same_float8_bits(stream, c, dtype, of) ? 1 : 0;
    }
  }
  EXPECT_GT(num_in_one, 0);
}

// Sums are not exact here: one order of additions is what both share. A kernel of ours serves once
// the tuner has found that its bits are the library's.
TEST(LinearSiluAndMul, InAFixedOrderIsWhatTheTwoOperatorsGiveOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(2);
  const auto queue = test_gpu()->create_queue();
  Stream stream(&pool, queue.get());
  stream.set_fixed_rows(true);
  Workspace scratch(stream, int64_t{64} << 20);
  constexpr int64_t kRows = 64, kSize = 1040, kFeatures = 2048;
  int num_in_one = 0;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor x = resident_copy(stream, random_tensor({kRows, kFeatures}, dtype, 1));
    LinearWeight weight = weight_on(stream, random_tensor({2 * kSize, kFeatures}, dtype, 2, 0.1f));
    const Tensor product = Tensor::empty({kRows, 2 * kSize}, dtype, stream.device());
    const auto multiply = [&](int64_t rows) {
      linear(stream, x.narrow(0, 0, rows), weight, {}, product.narrow(0, 0, rows), scratch);
    };
    GemmTuner(stream, "", 10).tune([&] { multiply(kRows); });
    for (const int64_t rows : {int64_t{1}, int64_t{8}, int64_t{33}, kRows}) {
      const Tensor expected = Tensor::empty({rows, kSize}, dtype, stream.device());
      const Tensor y = Tensor::empty({rows, kSize}, dtype, stream.device());
      const Tensor part = x.narrow(0, 0, rows);
      // A fresh input: tuning overwrites it.
      queue->copy(
          x.raw_data(), random_tensor({kRows, kFeatures}, dtype, 3).raw_data(), x.num_bytes());
      multiply(rows);
      silu_and_mul(stream, product.narrow(0, 0, rows), expected);
      linear_silu_and_mul(stream, part, weight, {}, y, scratch);
      EXPECT_EQ(bytes_from(stream, y), bytes_from(stream, expected)) << rows;
      const LinearCall call = {part, weight, {}, y, {}, true};
      for (const LinearVariant& variant : linear_silu_and_mul_variants()) {
        const bool is_ours = variant.name == std::string_view("ordered");
        num_in_one += is_ours && runs(variant, DeviceType::kCuda, call) ? 1 : 0;
      }
    }
  }
  std::printf("%d of 8 calls by one kernel\n", num_in_one);
  if (device_facts(DeviceType::kCuda).value().front().capability_major == 9) {
    EXPECT_EQ(num_in_one, 8);
  }
}

TEST(LinearSiluAndMulDeathTest, RefusesAnotherWidth) {
  LinearWeight weight = linear_weight_meta(64, 32, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(linear_silu_and_mul(Stream::dry_run(),
                                   Tensor::meta({2, 32}, DType::kFloat32),
                                   weight,
                                   Tensor(),
                                   Tensor::meta({2, 64}, DType::kFloat32),
                                   scratch),
               "size");
}

}  // namespace
}  // namespace atom::ops
