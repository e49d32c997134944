#include "ops/roofs/roofs.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/cpu_info.h"
#include "ops/roofs/roofs_gpu.h"
#include "ops/roofs/roofs_kernels.h"
#include "tensor/tensor.h"

namespace atom::ops {

namespace roofs_kernels {

uint64_t read_scalar(const char* data, int64_t size, int64_t ahead) {
  __m128i sum = _mm_setzero_si128();
  for (int64_t offset = 0; offset < size; offset += 64) {
    if (ahead != 0) _mm_prefetch(data + offset + ahead, _MM_HINT_T1);
    for (int i = 0; i < 64; i += 16) {
      sum =
          _mm_xor_si128(sum, _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + offset + i)));
    }
  }
  return _mm_cvtsi128_si64(sum) ^ _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum));
}

int64_t f32_flops_scalar(int64_t iterations) {
  constexpr int kChains = 8;
  // Different starts, unknown to the compiler: equal chains would be computed once.
  __m128 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm_set1_ps(static_cast<float>(iterations + c));
  const __m128 x = _mm_set1_ps(0.5f);
  __m128 y = _mm_set1_ps(0.001f);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm_add_ps(_mm_mul_ps(sums[c], x), y);
    }
  }
  __m128 total = sums[0];
  for (int c = 1; c < kChains; ++c) total = _mm_add_ps(total, sums[c]);
  const int64_t flops = iterations * kChains * 8;
  // Never true, but the compiler cannot know.
  return _mm_cvtss_f32(total) == 12345.0f ? flops + 1 : flops;
}

}  // namespace roofs_kernels

namespace {

using Clock = std::chrono::steady_clock;

// Well beyond any last-level cache. A window reads all of it once: what is held against this roof
// streams gigabytes, so the roof is a sustained rate and not that of the luckiest millisecond.
constexpr int64_t kBufferSize = int64_t{512} << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The best work per second of windows repeated for `seconds`, at least two. A window gets its
// number and returns its work.
template <typename Window>
double best_rate(double seconds, const Window& window) {
  const Clock::time_point start = Clock::now();
  double best = 0;
  for (int64_t i = 0; i < 2 || seconds_since(start) < seconds; ++i) {
    const Clock::time_point window_start = Clock::now();
    const double work = window(i);
    best = std::max(best, work / seconds_since(window_start));
  }
  return best;
}

const Tensor& read_buffer() {
  // Zeroing maps the pages; unmapped ones would all read the system's one page of zeros.
  static const Tensor buffer = Tensor::zeros({kBufferSize}, DType::kUInt8);
  return buffer;
}

struct ReadWay {
  roofs_kernels::ReadLoop loop;
  int64_t ahead;
};

std::vector<ReadWay> read_ways() {
  std::vector<ReadWay> ways;
  const auto add = [&](roofs_kernels::ReadLoop loop) {
    for (int64_t ahead : {0, 512, 1024, 2048, 4096}) ways.push_back({loop, ahead});
  };
  const CpuIsa isa = cpu_isa();
  if (isa >= CpuIsa::kAvx512) add(roofs_kernels::read_avx512);
  if (isa >= CpuIsa::kAvx2) add(roofs_kernels::read_avx2);
  if (ways.empty()) add(roofs_kernels::read_scalar);
  return ways;
}

double measure_read(ThreadPool& pool, double seconds) {
  // No one loop is the best on every machine or at every load, so windows take turns.
  const std::vector<ReadWay> ways = read_ways();
  const char* data = static_cast<const char*>(read_buffer().raw_data());
  const int64_t share = kBufferSize / pool.num_threads() / 1024 * 1024;
  std::atomic<uint64_t> sink{0};
  return best_rate(seconds, [&](int64_t i) {
    const ReadWay& way = ways[i % ways.size()];
    pool.run([&](int worker) { sink += way.loop(data + worker * share, share, way.ahead); });
    return static_cast<double>(share * pool.num_threads());
  });
}

double measure_flops(ThreadPool& pool, double seconds, roofs_kernels::FlopsLoop loop) {
  constexpr int64_t kIterations = 20000;
  return best_rate(seconds, [&](int64_t) {
    std::atomic<int64_t> flops{0};
    pool.run([&](int) { flops += loop(kIterations); });
    return static_cast<double>(flops.load());
  });
}

Roofs measure_cpu_roofs(const Stream& stream, double seconds_each) {
  ThreadPool& pool = stream.pool();
  Roofs roofs;
  roofs.read_bandwidth = measure_read(pool, seconds_each);
  const CpuIsa isa = cpu_isa();
  roofs.f32_flops = measure_flops(pool,
                                  seconds_each,
                                  isa >= CpuIsa::kAvx512 ? roofs_kernels::f32_flops_avx512
                                  : isa == CpuIsa::kAvx2 ? roofs_kernels::f32_flops_avx2
                                                         : roofs_kernels::f32_flops_scalar);
  roofs.bf16_flops = isa >= CpuIsa::kAvx512
                         ? measure_flops(pool,
                                         seconds_each,
                                         isa >= CpuIsa::kAmx ? roofs_kernels::bf16_flops_amx
                                                             : roofs_kernels::bf16_flops_avx512)
                         : roofs.f32_flops;
  return roofs;
}

}  // namespace

Roofs measure_roofs(const Stream& stream, double seconds_each) {
  return stream.device().is_cpu() ? measure_cpu_roofs(stream, seconds_each)
                                  : measure_gpu_roofs(stream, seconds_each);
}

}  // namespace atom::ops
