#include "cli/bench_session.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/file.h"
#include "base/mutex.h"
#include "cli/start_engine.h"
#include "ops/linear/library/gemm_library.h"
#include "runner/choose_device.h"

namespace atom::cli {
namespace {

// For each figure. A pass over a GPU's memory takes a fraction of a millisecond.
constexpr double kCpuRoofSeconds = 0.15;
constexpr double kGpuRoofSeconds = 0.03;
constexpr size_t kMaxTextBytes = size_t{16} << 20;

// Requests that were submitted together, and when their tokens came.
class Answers {
 public:
  Answers(size_t size, const std::function<void(size_t)>& on_finished)
      : on_finished_(on_finished), outputs_(size), times_(size) {}

  // What is new of a request, on the engine's output thread.
  void take(size_t index, const RequestOutput& output, const RequestUpdate& update) {
    const MutexLock lock(&mutex_);
    times_[index].insert(times_[index].end(), update.token_ids.size(), update.time);
    if (output.finished) finish(index, output);
  }
  void refuse(size_t index, const Status& status) {
    const MutexLock lock(&mutex_);
    RequestOutput refused;
    refused.status = status;
    finish(index, refused);
  }

  // Once all have finished.
  void wait() {
    MutexLock lock(&mutex_);
    while (num_finished_ != outputs_.size()) all_finished_.wait(&lock);
  }
  std::vector<RequestOutput> outputs() const {
    const MutexLock lock(&mutex_);
    return outputs_;
  }
  std::vector<TokenTimes> times() const {
    const MutexLock lock(&mutex_);
    return times_;
  }

 private:
  void finish(size_t index, const RequestOutput& output) REQUIRES(mutex_) {
    outputs_[index] = output;
    ++num_finished_;
    if (on_finished_) on_finished_(num_finished_);
    all_finished_.notify_one();
  }

  const std::function<void(size_t)>& on_finished_;
  mutable Mutex mutex_;
  Condition all_finished_;
  std::vector<RequestOutput> outputs_ GUARDED_BY(mutex_);
  std::vector<TokenTimes> times_ GUARDED_BY(mutex_);
  size_t num_finished_ GUARDED_BY(mutex_) = 0;
};

BatchFigures figures_of(const Answers& answers, int32_t output_len) {
  const std::vector<RequestOutput> outputs = answers.outputs();
  BatchFigures figures;
  double begin = outputs[0].metrics.arrival;
  double end = 0;
  double first_tokens = 0;
  double last_first = 0;
  std::vector<double> gaps;
  for (const RequestOutput& output : outputs) {
    const RequestMetrics& metrics = output.metrics;
    begin = std::min(begin, metrics.arrival);
    end = std::max(end, metrics.finished);
    last_first = std::max(last_first, metrics.first_token);
    first_tokens += metrics.time_to_first_token();
    if (output_len > 1) {
      gaps.push_back((metrics.finished - metrics.first_token) / (output_len - 1));
    }
  }
  figures.duration = end - begin;
  figures.mean_first_token = first_tokens / static_cast<double>(outputs.size());
  figures.last_first_token = last_first - begin;
  figures.decode_step = shared_token_time(answers.times());
  figures.token_gap = median(std::move(gaps));
  return figures;
}

void add_core_figures(const CoreStats& before, const CoreStats& after, BatchFigures* figures) {
  figures->num_steps = after.num_steps - before.num_steps;
  if (figures->num_steps == 0) return;
  const auto steps = static_cast<double>(figures->num_steps);
  const auto execute = static_cast<double>(after.execute_ns - before.execute_ns);
  const auto wait = static_cast<double>(after.device_wait_ns - before.device_wait_ns);
  figures->model_per_step = execute * 1e-9 / steps;
  figures->overhead_per_step = wait * 1e-9 / steps;
  figures->idle_share = wait * 1e-9 / figures->duration;
  figures->num_verifications = after.num_verifications - before.num_verifications;
  figures->num_draft_tokens = after.num_draft_tokens - before.num_draft_tokens;
  for (const auto counter : CoreStats::kAcceptedAt) {
    figures->num_accepted_at.push_back(after.*counter - before.*counter);
  }
}

}  // namespace

Result<std::unique_ptr<BenchSession>> BenchSession::create(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const Device device, choose_device(config.device));
  std::unique_ptr<DeviceQueue> queue;
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(queue, open_measured_queue(device));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LLMEngine> engine, start_engine(config));
  return std::unique_ptr<BenchSession>(new BenchSession(std::move(engine), std::move(queue)));
}

BenchSession::BenchSession(std::unique_ptr<LLMEngine> engine, std::unique_ptr<DeviceQueue> queue)
    : engine_(std::move(engine)),
      pool_(engine_->config().num_threads),
      queue_(std::move(queue)),
      stream_(queue_ ? Stream(&pool_, queue_.get()) : Stream(&pool_)),
      random_(engine_->config().engine.model.seed) {}

Status BenchSession::take_text(const std::string& path) {
  CHECK(engine_->tokenizer() != nullptr);
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTextBytes));
  ASSIGN_OR_RETURN(text_, engine_->tokenizer()->encode(text, true));
  const auto unknown =
      std::ranges::find_if(text_, [&](int32_t id) { return id >= config().model.vocab_size; });
  if (unknown != text_.end()) {
    return invalid_argument("--forced-text {}: the tokenizer gives token {}, the model has {}",
                            path,
                            *unknown,
                            config().model.vocab_size);
  }
  return {};
}

std::vector<Prompt> BenchSession::prompts_for(const BatchShape& shape) {
  std::uniform_int_distribution<int32_t> any_token(0, config().model.vocab_size - 1);
  std::vector<Prompt> prompts;
  for (int32_t i = 0; i < shape.batch; ++i) {
    std::vector<int32_t> ids(shape.input_len);
    for (int32_t& id : ids) id = any_token(random_);
    if (!text_.empty()) std::copy_n(text_.begin(), shape.input_len, ids.begin());
    prompts.emplace_back(std::move(ids));
  }
  return prompts;
}

Result<BatchFigures> BenchSession::run(const BatchShape& shape,
                                       const std::function<void(size_t)>& on_finished) {
  SamplingParams sampling;
  sampling.temperature = temperature_;
  sampling.ignore_eos = true;
  sampling.max_tokens = shape.output_len;
  if (!text_.empty()) {
    const auto begin = text_.begin() + std::min<ptrdiff_t>(shape.input_len, std::ssize(text_));
    if (text_.end() - begin < shape.output_len) {
      return invalid_argument("--forced-text: the text has {} tokens, and {} are measured",
                              text_.size(),
                              int64_t{shape.input_len} + shape.output_len);
    }
    // The answer comes as what ends reasoning that may not begin.
    sampling.max_thinking_tokens = 0;
    sampling.starts_thinking = true;
    sampling.thinking_closing_ids.assign(begin, begin + shape.output_len);
  }
  const std::vector<Prompt> prompts = prompts_for(shape);
  const CoreStats before = engine_->stats();
  Answers answers(prompts.size(), on_finished);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Result<RequestId> id = engine_->submit(
        prompts[i], sampling, [&, i](const RequestOutput& output, const RequestUpdate& update) {
          answers.take(i, output, update);
        });
    if (!id.ok()) answers.refuse(i, id.status());
  }
  answers.wait();
  for (const RequestOutput& output : answers.outputs()) RETURN_IF_ERROR(output.status);
  BatchFigures figures = figures_of(answers, shape.output_len);
  add_core_figures(before, engine_->stats(), &figures);
  return figures;
}

int32_t BenchSession::num_cards() const {
  const ParallelConfig& parallel = config().engine.parallel;
  return device().is_cpu() ? 1 : parallel.ranks_of_copy() * parallel.data_parallel_size;
}

ops::Roofs BenchSession::measure_roofs() {
  return scaled(ops::measure_roofs(stream_, roof_seconds(device())), num_cards());
}

Result<std::unique_ptr<DeviceQueue>> open_measured_queue(Device device) {
  ASSIGN_OR_RETURN(DeviceRuntime * runtime, device_runtime(device));
  std::unique_ptr<DeviceQueue> queue = runtime->create_queue();
  ThreadPool pool(1);
  try {
    (void)ops::measure_roofs(Stream(&pool, queue.get()), 0);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("{} has too little free memory to be measured: 1.1 GiB are needed",
                              runtime->facts().name);
  }
  return queue;
}

double roof_seconds(Device device) {
  return device.is_cpu() ? kCpuRoofSeconds : kGpuRoofSeconds;
}

std::string machine_text(Device device, int32_t num_threads, int32_t num_cards) {
  if (device.is_cpu()) return fmt::format("{} thread{}", num_threads, num_threads == 1 ? "" : "s");
  const Result<DeviceRuntime*> runtime = device_runtime(device);
  const Result<std::string> library = ops::gemm_library();
  return fmt::format("{}{}, {}",
                     num_cards > 1 ? fmt::format("{} x ", num_cards) : "",
                     (*runtime)->facts().name,
                     library.ok() ? *library : "no library for matrix multiplication");
}

ops::Roofs scaled(const ops::Roofs& roofs, double factor) {
  return {.read_bandwidth = roofs.read_bandwidth * factor,
          .bf16_flops = roofs.bf16_flops * factor,
          .f32_flops = roofs.f32_flops * factor,
          .copy_bandwidth = roofs.copy_bandwidth * factor,
          .fp8_flops = roofs.fp8_flops * factor};
}

ops::Roofs mean(const ops::Roofs& a, const ops::Roofs& b) {
  return {.read_bandwidth = (a.read_bandwidth + b.read_bandwidth) / 2,
          .bf16_flops = (a.bf16_flops + b.bf16_flops) / 2,
          .f32_flops = (a.f32_flops + b.f32_flops) / 2,
          .copy_bandwidth = (a.copy_bandwidth + b.copy_bandwidth) / 2,
          .fp8_flops = (a.fp8_flops + b.fp8_flops) / 2};
}

}  // namespace atom::cli
