// A row of linear() on a stream of fixed rows is the same whatever rows stand around it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ops/linear/library/gemm_tuner.h"
#include "ops/linear/linear.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr int64_t kRows = 1000;

struct Device {
  ThreadPool pool{2};
  std::unique_ptr<DeviceQueue> queue = test_gpu()->create_queue();
  Stream stream{&pool, queue.get()};
  Workspace scratch{stream, int64_t{256} << 20};

  Device() { stream.set_fixed_rows(true); }

  Tensor copy_of(const Tensor& host) {
    const Tensor copy = Tensor::empty(host.shape(), host.dtype(), queue->device());
    queue->copy(copy.raw_data(), host.raw_data(), host.num_bytes());
    queue->synchronize();
    return copy;
  }
};

// A weight, and rows to multiply by it.
struct Operands {
  Tensor x;
  Tensor x_scales;  // FP8 only
  LinearWeight weight;
  DType y_dtype;

  // Rows [begin, end) of the result, computed in one call.
  std::vector<char> rows(Device& device, int64_t begin, int64_t end) const {
    const int64_t count = end - begin;
    const Tensor y = Tensor::empty({count, weight.out_features}, y_dtype, device.queue->device());
    const Tensor part = x.narrow(0, begin, count);
    if (x_scales.defined()) {
      // Calls have their scales at aligned places of their own.
      const Tensor scales = Tensor::empty({count}, DType::kFloat32, device.queue->device());
      device.queue->copy(
          scales.raw_data(), x_scales.narrow(0, begin, count).raw_data(), scales.num_bytes());
      linear(device.stream, part, scales, weight, {}, y, device.scratch);
    } else {
      linear(device.stream, part, weight, {}, y, device.scratch);
    }
    std::vector<char> bytes(static_cast<size_t>(y.num_bytes()));
    device.queue->copy(bytes.data(), y.raw_data(), y.num_bytes());
    device.queue->synchronize();
    return bytes;
  }
};

void expect_rows_of_their_own(Device& device, const Operands& operands) {
  const std::vector<char> all = operands.rows(device, 0, kRows);
  const size_t row_size = all.size() / kRows;
  for (const auto& [begin, end] : std::initializer_list<std::pair<int64_t, int64_t>>{{0, 1},
                                                                                     {77, 78},
                                                                                     {130, 135},
                                                                                     {10, 26},
                                                                                     {200, 232},
                                                                                     {30, 94},
                                                                                     {3, 131},
                                                                                     {500, 756},
                                                                                     {1, 1000},
                                                                                     {999, 1000}}) {
    const std::vector<char> part = operands.rows(device, begin, end);
    EXPECT_EQ(std::memcmp(part.data(), all.data() + begin * row_size, part.size()), 0)
        << "rows " << begin << " to " << end;
  }
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {1024, 256}, {4808, 1008}};

// x and the weight of one type, y of that and float32.
void expect_rows_of_their_own(DType dtype) {
  Device device;
  for (const auto& [out_features, in_features] : kShapes) {
    SCOPED_TRACE(fmt::format("{} x {} in {}", out_features, in_features, dtype_name(dtype)));
    const Tensor x = device.copy_of(random_tensor({kRows, in_features}, dtype, 1));
    const LinearWeight weight{
        device.copy_of(random_tensor({out_features, in_features}, dtype, 2, 0.1f)),
        out_features,
        in_features,
        WeightLayout::kRowMajor,
        Tensor()};
    expect_rows_of_their_own(device, {x, Tensor(), weight, dtype});
    expect_rows_of_their_own(device, {x, Tensor(), weight, DType::kFloat32});
  }
}

TEST(LinearFixed, ARowOfBFloat16IsTheSameInEveryCall) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  expect_rows_of_their_own(DType::kBFloat16);
}

TEST(LinearFixed, ARowOfFloat32Likewise) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  expect_rows_of_their_own(DType::kFloat32);
}

// Codes of every size without NaN.
Tensor random_codes(const Shape& shape, uint64_t seed) {
  const Tensor codes = Tensor::empty(shape, DType::kFloat8E4M3);
  auto* bytes = static_cast<uint8_t*>(codes.raw_data());
  uint64_t state = seed;
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<uint8_t>(state >> 56) & 0xbf;
  }
  return codes;
}

TEST(LinearFixed, ARowOfFloat8Likewise) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  Device device;
  for (const auto& [out_features, in_features] : kShapes) {
    SCOPED_TRACE(fmt::format("{} x {}", out_features, in_features));
    const LinearWeight weight{device.copy_of(random_codes({out_features, in_features}, 2)),
                              out_features,
                              in_features,
                              WeightLayout::kRowMajor,
                              device.copy_of(random_tensor({out_features}, DType::kFloat32, 3))};
    expect_rows_of_their_own(device,
                             {device.copy_of(random_codes({kRows, in_features}, 1)),
                              device.copy_of(random_tensor({kRows}, DType::kFloat32, 4)),
                              weight,
                              DType::kBFloat16});
  }
}

// With few rows, which kernels of ours may have, and with many, where other algorithms are faster
// than the one for all.
TEST(LinearFixed, TuningChangesNoBit) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  Device device;
  for (const auto& [out_features, in_features] : kShapes) {
    SCOPED_TRACE(fmt::format("{} x {}", out_features, in_features));
    const DType dtype = DType::kBFloat16;
    const Tensor host_x = random_tensor({kRows, in_features}, dtype, 1);
    const LinearWeight weight{
        device.copy_of(random_tensor({out_features, in_features}, dtype, 2, 0.1f)),
        out_features,
        in_features,
        WeightLayout::kRowMajor,
        Tensor()};
    const Operands operands{device.copy_of(host_x), Tensor(), weight, dtype};
    const std::vector<char> before = operands.rows(device, 0, kRows);
    const size_t row_size = before.size() / kRows;

    constexpr int64_t kCounts[] = {1, 2, 4, 8, 16, 24, 64, 80, 256, 600, 1000};
    constexpr int64_t kManyRows = 65;  // no kernel of ours takes so many
    const auto num_many = std::count_if(
        std::begin(kCounts), std::end(kCounts), [](int64_t count) { return count >= kManyRows; });
    const Tensor x = device.copy_of(host_x);  // is overwritten
    const Tensor y = Tensor::empty({kRows, out_features}, dtype, device.queue->device());
    GemmTuner tuner(device.stream, "", 10);
    tuner.tune([&] {
      for (const int64_t count : kCounts) {
        linear(device.stream,
               x.narrow(0, 0, count),
               weight,
               {},
               y.narrow(0, 0, count),
               device.scratch);
      }
    });
    std::printf("%lld x %lld: %d kinds measured, %d changed\n",
                static_cast<long long>(out_features),
                static_cast<long long>(in_features),
                tuner.result().num_measured,
                tuner.result().num_changed);
    EXPECT_GE(tuner.result().num_measured, num_many);
    for (const int64_t count : kCounts) {
      const int64_t begin = kRows - count;
      const std::vector<char> after = operands.rows(device, begin, kRows);
      EXPECT_EQ(std::memcmp(after.data(), before.data() + begin * row_size, after.size()), 0)
          << count << " rows";
    }
  }
}

}  // namespace
}  // namespace atom::ops
