// A row of linear() on a stream of fixed rows is the same whatever rows stand around it.
#include <gtest/gtest.h>

#include <cstring>

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

  // Rows [begin, end) of x times the weight, computed in one call.
  std::vector<char> rows_of(const Tensor& x,
                            const LinearWeight& weight,
                            int64_t begin,
                            int64_t end) {
    const Tensor y = Tensor::empty({end - begin, weight.out_features}, x.dtype(), queue->device());
    linear(stream, x.narrow(0, begin, end - begin), weight, {}, y, scratch);
    std::vector<char> bytes(static_cast<size_t>(y.num_bytes()));
    queue->copy(bytes.data(), y.raw_data(), y.num_bytes());
    queue->synchronize();
    return bytes;
  }
};

TEST(LinearTiles, ARowIsTheSameInEveryCall) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  Device device;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const auto& [out_features, in_features] :
         {std::pair{6144, 4096}, {4096, 14336}, {1024, 256}, {4808, 1000}}) {
      SCOPED_TRACE(fmt::format("{} x {} in {}", out_features, in_features, dtype_name(dtype)));
      const Tensor x = device.copy_of(random_tensor({kRows, in_features}, dtype, 1));
      const LinearWeight weight{
          device.copy_of(random_tensor({out_features, in_features}, dtype, 2, 0.1f)),
          out_features,
          in_features,
          WeightLayout::kRowMajor,
          Tensor()};
      const std::vector<char> all = device.rows_of(x, weight, 0, kRows);
      const size_t row_size = all.size() / kRows;
      for (const auto& [begin, end] : std::initializer_list<std::pair<int64_t, int64_t>>{
               {0, 1}, {77, 78}, {130, 135}, {3, 131}, {500, 628}, {1, 1000}, {999, 1000}}) {
        const std::vector<char> part = device.rows_of(x, weight, begin, end);
        EXPECT_EQ(std::memcmp(part.data(), all.data() + begin * row_size, part.size()), 0)
            << "rows " << begin << " to " << end;
      }
    }
  }
}

}  // namespace
}  // namespace atom::ops
