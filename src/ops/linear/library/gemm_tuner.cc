#include "ops/linear/library/gemm_tuner.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ops/linear/library/algorithm_file.h"
#include "ops/linear/library/gemm_library.h"
#include "ops/linear/library/gemm_plans.h"
#include "ops/linear/ordered/ordered_cuda.h"
#include "ops/linear/ordered/ordered_sm90.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxCandidates = 16;
// Another algorithm than the library's first has to be faster by this.
constexpr double kWorthwhile = 0.98;
// Candidates that were slower than the best by this are not measured again.
constexpr double kHopeless = 1.1;
constexpr int kNumRounds = 3;
// Kernels that fill memory before a measurement give the processor time to enqueue all of it.
constexpr int kNumFills = 4;

// Two algorithms that give the same bits for so many sums add them in the same order: of those that
// do not, one in ten thousand of bfloat16 results differs.
constexpr int64_t kConvincingSums = int64_t{1} << 17;
// Sums that are scaled in two ways differ in one of a hundred thousand.
constexpr int64_t kConvincingScaledSums = int64_t{1} << 22;
constexpr int64_t kComparedRows = 64;

std::string name_of(const GemmKey& key) {
  return fmt::format("{} rows {} x {} {} to {} strides {} {} scales {}{}{}",
                     key.num_rows,
                     key.out_features,
                     key.in_features,
                     dtype_name(key.dtype),
                     dtype_name(key.y_dtype),
                     key.x_stride,
                     key.y_stride,
                     static_cast<int>(key.scales),
                     key.has_bias ? " bias" : "",
                     key.fixed_order ? " fixed order" : "");
}

// FNV-1a over the library's opaque description, which is the same in every run of one version.
uint64_t fingerprint_of(const GemmAlgorithm& algorithm) {
  if (algorithm.is_ordered) return 1;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&algorithm.library);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof(algorithm.library); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

class Event {
 public:
  Event() { GPU_CHECK(ATOM_GPU(EventCreate)(&event_)); }
  ~Event() { (void)ATOM_GPU(EventDestroy)(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(gpuStream_t stream) { GPU_CHECK(ATOM_GPU(EventRecord)(event_, stream)); }

  // Waits for `end`.
  static double seconds_between(const Event& begin, const Event& end) {
    GPU_CHECK(ATOM_GPU(EventSynchronize)(end.event_));
    float milliseconds = 0;
    GPU_CHECK(ATOM_GPU(EventElapsedTime)(&milliseconds, begin.event_, end.event_));
    return milliseconds * 1e-3;
  }

 private:
  gpuEvent_t event_ = nullptr;
};

}  // namespace

struct GemmTuner::State {
  State(const Stream& the_stream, double max_seconds)
      : stream(the_stream),
        end(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(max_seconds))) {}

  bool run(const NotedCalls& calls,
           const GemmAlgorithm& algorithm,
           const GemmOperands& operands) const {
    return GemmPlans::current().try_algorithm(
        calls.key, algorithm, operands, calls.scratch, stream.queue().handle());
  }

  // Whether both give the same bits, for inputs that are made up.
  bool agree(const NotedCalls& calls, const GemmAlgorithm& a, const GemmAlgorithm& b) const {
    const GemmKey& key = calls.key;
    const GemmOperands& operands = calls.operands.front();
    const int64_t row_size = key.out_features * dtype_size(key.y_dtype);
    const int64_t room = kGemmScratchSize - kGemmScratchAlignment;
    const int64_t num_rows = std::min({key.num_rows, kComparedRows, room / row_size});
    if (num_rows == 0 || key.y_stride != key.out_features) return false;
    const int64_t num_bytes = num_rows * row_size;
    auto* counter = reinterpret_cast<int32_t*>(static_cast<char*>(calls.scratch) + room);
    DeviceQueue& queue = stream.queue();
    const int64_t num_inputs = (key.num_rows - 1) * key.x_stride + key.in_features;
    const bool has_vectors = key.scales == GemmScales::kVectors;
    const int64_t enough = has_vectors ? kConvincingScaledSums : kConvincingSums;
    int32_t num_different = 0;
    int64_t num_sums = 0;
    for (uint64_t seed = 1; num_sums < enough && num_different == 0; ++seed) {
      // FP8: codes that are not NaN.
      queue.fill_random(const_cast<void*>(operands.x),
                        key.dtype,
                        num_inputs,
                        {.key = seed, .half_width = 1, .byte_mask = 0xbf});
      if (has_vectors) {
        queue.fill_random(const_cast<float*>(operands.x_scales),
                          DType::kFloat32,
                          key.num_rows,
                          {.key = seed, .half_width = 1});
      }
      if (!run(calls, a, operands)) return false;
      queue.copy(calls.scratch, operands.y, num_bytes);
      if (!run(calls, b, operands)) return false;
      queue.fill_zero(counter, sizeof(int32_t));
      GPU_CHECK(launch_count_differences(
          calls.scratch, operands.y, num_bytes, counter, static_cast<gpuStream_t>(queue.handle())));
      queue.copy(&num_different, counter, sizeof(int32_t));
      queue.synchronize();
      num_sums += num_rows * key.out_features;
    }
    return num_different == 0;
  }

  // Seconds of a call of that kind; infinite when the algorithm cannot run.
  double measure(const NotedCalls& calls, const GemmAlgorithm& algorithm) {
    const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
    for (int i = 0; i < kNumFills; ++i) {
      stream.queue().fill_zero(calls.scratch, kGemmScratchSize);
    }
    before.record(queue);
    for (const GemmOperands& operands : calls.operands) {
      if (!run(calls, algorithm, operands)) {
        return std::numeric_limits<double>::infinity();
      }
    }
    after.record(queue);
    return Event::seconds_between(before, after) / static_cast<double>(calls.operands.size());
  }

  // The index of the fastest.
  size_t fastest(const NotedCalls& calls, const std::vector<GemmAlgorithm>& candidates) {
    std::vector<double> times(candidates.size(), std::numeric_limits<double>::infinity());
    double best = times.front();
    for (int round = 0; round < kNumRounds; ++round) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (round > 0 && i > 0 && times[i] > best * kHopeless) continue;
        times[i] = std::min(times[i], measure(calls, candidates[i]));
      }
      best = *std::min_element(times.begin(), times.end());
    }
    const auto found = std::min_element(times.begin(), times.end());
    return *found < times.front() * kWorthwhile ? found - times.begin() : 0;
  }

  // Admits our kernel for few rows, which is not measured, if it gives the library's bits.
  void admit_ordered(NotedCalls calls) const {
    GemmPlans& plans = GemmPlans::current();
    GemmKey& key = calls.key;
    key.num_rows = std::min<int64_t>(key.num_rows, kMaxOrderedRows);
    if (plans.admits_ordered(key) || !GemmPlans::fits_ordered(key, calls.operands.front())) return;
    const std::vector<GemmAlgorithm> common = plans.candidates(key, 1);
    if (!common.empty() && agree(calls, common.front(), {.is_ordered = true})) {
      plans.admit_ordered(key);
    }
  }

  void decide(const NotedCalls& calls) {
    const std::string name = name_of(calls.key);
    std::vector<GemmAlgorithm> candidates =
        GemmPlans::current().candidates(calls.key, kMaxCandidates);
    if (candidates.empty()) return;
    if (const auto followed = GemmPlans::current().follow_other_card(calls.key)) {
      table.fingerprints[name] = fingerprint_of(*followed);
      ++result.num_followed;
      return;
    }
    const auto remembered = table.fingerprints.find(name);
    size_t chosen = candidates.size();
    if (remembered != table.fingerprints.end()) {
      for (chosen = 0; chosen < candidates.size(); ++chosen) {
        if (fingerprint_of(candidates[chosen]) == remembered->second) break;
      }
    }
    if (chosen < candidates.size()) {
      ++result.num_remembered;
    } else if (Clock::now() > end) {
      ++result.num_left;
      return;
    } else {
      if (calls.key.fixed_order) {
        const GemmAlgorithm common = candidates.front();
        std::erase_if(candidates, [&](const GemmAlgorithm& algorithm) {
          return &algorithm != &candidates.front() && !agree(calls, common, algorithm);
        });
      }
      chosen = fastest(calls, candidates);
      table.fingerprints[name] = fingerprint_of(candidates[chosen]);
      ++result.num_measured;
    }
    if (chosen > 0) ++result.num_changed;
    GemmPlans::current().choose(calls.key, candidates[chosen]);
  }

  const Stream& stream;
  const Clock::time_point end;
  std::string path;  // empty: nothing is remembered
  AlgorithmTable table;
  GemmTuning result;
  Event before;
  Event after;
};

GemmTuner::GemmTuner(const Stream& stream, const std::string& cache_folder, double max_seconds)
    : state_(std::make_unique<State>(stream, max_seconds)) {
  const Result<std::string> version = gemm_library_version();
  const Result<DeviceRuntime*> runtime = device_runtime(stream.device());
  if (!version.ok() || !runtime.ok() || cache_folder.empty()) return;
  state_->table.card = (*runtime)->facts().name;
  state_->table.library = *version;
  state_->path = algorithm_file_path(cache_folder, state_->table);
  const Status read = read_algorithms(state_->path, &state_->table);
  if (!read.ok() && read.code() != StatusCode::kNotFound) {
    log::warning("{}; it will be written anew", read.message());
  }
}

GemmTuner::~GemmTuner() = default;

void GemmTuner::tune(const std::function<void()>& step) {
  if (!cublaslt().ok()) return;
  GemmPlans& plans = GemmPlans::current();
  plans.start_noting();
  step();
  const std::vector<NotedCalls> noted = plans.stop_noting();
  for (const NotedCalls& calls : noted) {
    if (calls.key.fixed_order) state_->admit_ordered(calls);
    const bool by_ordered = calls.key.fixed_order && calls.key.num_rows <= kMaxOrderedRows &&
                            plans.admits_ordered(calls.key);
    if (!by_ordered) state_->decide(calls);
  }
  state_->stream.queue().synchronize();
}

void GemmTuner::save() {
  if (state_->path.empty() || state_->result.num_measured == 0) return;
  const Status written = write_algorithms(state_->path, state_->table);
  if (!written.ok()) log::warning("{}", written.message());
}

const GemmTuning& GemmTuner::result() const {
  return state_->result;
}

}  // namespace atom::ops
