#include "ops/linear/gemm_tuner.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ops/linear/algorithm_file.h"
#include "ops/linear/gemm_library.h"
#include "ops/linear/gemm_plans.h"
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

std::string name_of(const GemmKey& key) {
  return fmt::format("{} rows {} x {} {} to {} strides {} {} scales {}{}",
                     key.num_rows,
                     key.out_features,
                     key.in_features,
                     dtype_name(key.dtype),
                     dtype_name(key.y_dtype),
                     key.x_stride,
                     key.y_stride,
                     static_cast<int>(key.scales),
                     key.has_bias ? " bias" : "");
}

// FNV-1a over the library's opaque description, which is the same in every run of one version.
uint64_t fingerprint_of(const cublasLtMatmulAlgo_t& algorithm) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&algorithm);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof(algorithm); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
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

  // Seconds of a call of that kind; infinite when the algorithm cannot run.
  double measure(const NotedCalls& calls, const cublasLtMatmulAlgo_t& algorithm) {
    const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
    for (int i = 0; i < kNumFills; ++i) {
      stream.queue().fill_zero(calls.scratch, kGemmScratchSize);
    }
    before.record(queue);
    for (const GemmOperands& operands : calls.operands) {
      if (!GemmPlans::shared().try_algorithm(
              calls.key, algorithm, operands, calls.scratch, queue)) {
        return std::numeric_limits<double>::infinity();
      }
    }
    after.record(queue);
    return Event::seconds_between(before, after) / static_cast<double>(calls.operands.size());
  }

  // The index of the fastest.
  size_t fastest(const NotedCalls& calls, const std::vector<cublasLtMatmulAlgo_t>& candidates) {
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

  void decide(const NotedCalls& calls) {
    const std::string name = name_of(calls.key);
    const auto candidates = GemmPlans::shared().candidates(calls.key, kMaxCandidates);
    if (candidates.empty()) return;
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
      chosen = fastest(calls, candidates);
      table.fingerprints[name] = fingerprint_of(candidates[chosen]);
      ++result.num_measured;
    }
    if (chosen > 0) ++result.num_changed;
    GemmPlans::shared().choose(calls.key, candidates[chosen]);
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
  const Result<DeviceRuntime*> runtime = device_runtime(stream.device().type);
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
  GemmPlans& plans = GemmPlans::shared();
  plans.start_noting();
  step();
  const std::vector<NotedCalls> noted = plans.stop_noting();
  for (const NotedCalls& calls : noted) state_->decide(calls);
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
