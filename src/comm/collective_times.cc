#include "comm/collective_times.h"

#include <algorithm>
#include <functional>

#include "tensor/fill.h"

namespace atom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;
constexpr int64_t kFewest = 3, kMost = 2000;

void run(Communicator& rank,
         const Stream& stream,
         Collective collective,
         const Tensor& from,  // [ranks, n]
         const Tensor& to) {  // [ranks, n]
  switch (collective) {
    case Collective::kAllReduce:
      return rank.all_reduce(stream, from);
    case Collective::kAllGather:
      return rank.all_gather(stream, from.narrow(0, rank.rank(), 1), to);
    case Collective::kAllToAll:
      return rank.all_to_all(stream, from, to);
  }
}

void wait_for(const Stream& stream) {
  if (!stream.device().is_cpu()) stream.queue().synchronize();
}

// Nanoseconds of `count` in a row, on the slowest rank; `value` is of one int64.
int64_t time(Communicator& rank,
             const Stream& stream,
             int64_t count,
             const Tensor& value,
             const std::function<void()>& once) {
  rank.barrier(stream);
  wait_for(stream);
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < count; ++i) once();
  wait_for(stream);
  const std::chrono::nanoseconds took = Clock::now() - begin;
  *value.data<int64_t>() = took.count();
  rank.all_reduce(Stream(&stream.pool()), value, ReduceOp::kMax);
  return std::max<int64_t>(1, *value.data<int64_t>());
}

}  // namespace

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kAllToAll:
      return "all-to-all";
  }
  return "";
}

double CollectiveTime::bus_bandwidth(int num_ranks) const {
  const double others = static_cast<double>(num_ranks - 1) / num_ranks;
  const double moved = (collective == Collective::kAllReduce ? 2 : 1) * others;
  return moved * static_cast<double>(bytes) / seconds;
}

Result<std::vector<CollectiveTime>> measure_collectives(Communicator& rank,
                                                        const Stream& stream,
                                                        std::span<const int64_t> sizes,
                                                        std::chrono::milliseconds budget) {
  std::vector<CollectiveTime> times;
  const Tensor value = Tensor::empty({1}, DType::kInt64);
  for (const int64_t bytes : sizes) {
    const int64_t width = bytes / int64_t{sizeof(float)} / rank.size();
    CHECK(width * int64_t{sizeof(float)} * rank.size() == bytes);
    const auto zeros = [&] {
      const Tensor tensor = Tensor::empty({rank.size(), width}, DType::kFloat32, stream.device());
      fill_zero(stream, tensor);
      return tensor;
    };
    const Tensor from = zeros(), to = zeros();
    wait_for(stream);
    rank.barrier(Stream(&stream.pool()));  // no card waits for another while memory is taken
    for (const Collective collective : kCollectives) {
      const auto once = [&] { run(rank, stream, collective, from, to); };
      const int64_t trial = time(rank, stream, kWarmUps, value, once);
      const std::chrono::nanoseconds wanted = budget;
      const int64_t count = std::clamp(wanted.count() * kWarmUps / trial, kFewest, kMost);
      const int64_t took = time(rank, stream, count, value, once);
      RETURN_IF_ERROR(rank.status());
      times.push_back({collective, bytes, 1e-9 * static_cast<double>(took) / count});
    }
  }
  return times;
}

}  // namespace atom
