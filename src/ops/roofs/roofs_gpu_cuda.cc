#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>

#include "ops/linear/library/cublaslt.h"
#include "ops/roofs/roofs_gemm_cuda.h"
#include "ops/roofs/roofs_gpu.h"
#include "ops/roofs/roofs_gpu_kernels.h"
#include "tensor/device_runtime.h"
#include "tensor/gpu_check.h"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

constexpr int64_t kBufferSize = int64_t{1} << 30;  // many times any cache
constexpr int64_t kHalf = kBufferSize / 2;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMatrix = 8192;       // of bfloat16 and FP8
constexpr int64_t kFloatMatrix = 4096;  // the cores that have no float32 of their own are slow

// Blocks of threads per multiprocessor; which is best differs from card to card.
constexpr int kBlocksPerProcessor[] = {2, 4, 8, 32};

// Times work between two events of a queue.
class Stopwatch {
 public:
  explicit Stopwatch(DeviceQueue& queue) : queue_(static_cast<cudaStream_t>(queue.handle())) {
    GPU_CHECK(cudaEventCreate(&begin_));
    GPU_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // The least seconds of windows repeated for `seconds`, at least one of each of `num_ways`. A
  // window gets its way; one that returns false does not count. Infinite when none counts.
  double least(double seconds, size_t num_ways, const std::function<bool(size_t way)>& window) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    double best = std::numeric_limits<double>::infinity();
    for (size_t i = 0;
         i < 2 * num_ways || std::chrono::duration<double>(Clock::now() - start).count() < seconds;
         ++i) {
      GPU_CHECK(cudaEventRecord(begin_, queue_));
      const bool counts = window(i % num_ways);
      GPU_CHECK(cudaEventRecord(end_, queue_));
      GPU_CHECK(cudaEventSynchronize(end_));
      float milliseconds = 0;
      GPU_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (counts) best = std::min(best, double{milliseconds} * 1e-3);
    }
    return best;
  }

 private:
  cudaStream_t queue_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Memory and library plans, made at the first measurement.
class Meter {
 public:
  Meter(DeviceRuntime& runtime, DeviceQueue& queue)
      : num_processors_(runtime.facts().num_multiprocessors),
        memory_(runtime.allocate(kBufferSize)),
        scratch_(runtime.allocate(LibraryGemm::kScratchSize)) {
    // Numbers, not zeros: a multiplication of zeros takes less power, so the card runs it faster.
    const RandomFill around_zero{.key = 1, .half_width = 1};
    queue.fill_random(at(0), DType::kBFloat16, 256 * kMiB / 2, around_zero);
    queue.fill_random(at(kFp8), DType::kUInt8, 128 * kMiB, {.key = 2, .byte_mask = 0xbf});
    queue.fill_random(at(kFloats), DType::kFloat32, 128 * kMiB / 4, around_zero);
    const Result<CublasLt>& library = cublaslt();
    if (!library.ok()) return;
    bf16_ = std::make_unique<LibraryGemm>(*library, DType::kBFloat16, kMatrix);
    fp8_ = std::make_unique<LibraryGemm>(*library, DType::kFloat8E4M3, kMatrix);
    f32_ = std::make_unique<LibraryGemm>(*library, DType::kFloat32, kFloatMatrix);
  }

  Roofs measure(DeviceQueue& queue, double seconds_each) const {
    Stopwatch watch(queue);
    void* const handle = queue.handle();
    const auto blocks = [&](size_t way) { return kBlocksPerProcessor[way] * num_processors_; };
    const size_t num_ways = std::size(kBlocksPerProcessor);
    Roofs roofs;
    roofs.read_bandwidth = kBufferSize / watch.least(seconds_each, num_ways, [&](size_t way) {
      roofs_kernels::read_gpu(at(0), kBufferSize, blocks(way), handle);
      return true;
    });
    // One more way: the runtime's own copy.
    roofs.copy_bandwidth = 2 * kHalf / watch.least(seconds_each, num_ways + 1, [&](size_t way) {
      if (way == num_ways) {
        queue.copy(at(kHalf), at(0), kHalf);
      } else {
        roofs_kernels::copy_gpu(at(0), at(kHalf), kHalf, blocks(way), handle);
      }
      return true;
    });
    roofs.bf16_flops = rate(bf16_.get(), 0, 128 * kMiB, watch, seconds_each, handle);
    roofs.fp8_flops = rate(fp8_.get(), kFp8, kFp8 + 64 * kMiB, watch, seconds_each, handle);
    roofs.f32_flops = rate(f32_.get(), kFloats, kFloats + 64 * kMiB, watch, seconds_each, handle);
    return roofs;
  }

 private:
  // Operands lie in the first half, products in the second.
  static constexpr int64_t kFp8 = 256 * kMiB;
  static constexpr int64_t kFloats = 384 * kMiB;

  void* at(int64_t offset) const { return static_cast<char*>(memory_.get()) + offset; }

  // 0 where the library is missing or cannot.
  double rate(const LibraryGemm* gemm,
              int64_t a,
              int64_t b,
              Stopwatch& watch,
              double seconds,
              void* queue) const {
    if (gemm == nullptr || gemm->num_algorithms() == 0) return 0;
    return gemm->flops() / watch.least(seconds, gemm->num_algorithms(), [&](size_t algorithm) {
      return gemm->multiply(algorithm, at(a), at(b), at(kHalf), scratch_.get(), queue);
    });
  }

  int num_processors_;
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> scratch_;
  std::unique_ptr<LibraryGemm> bf16_;
  std::unique_ptr<LibraryGemm> fp8_;
  std::unique_ptr<LibraryGemm> f32_;
};

}  // namespace

Roofs measure_gpu_roofs(const Stream& stream, double seconds_each) {
  DeviceQueue& queue = stream.queue();
  // Never destroyed: the runtime may be gone when the program ends.
  static PerCard<const Meter*> meters;
  const Meter* meter =
      meters.get([&] { return new Meter(**device_runtime(stream.device()), queue); });
  return meter->measure(queue, seconds_each);
}

}  // namespace atom::ops
