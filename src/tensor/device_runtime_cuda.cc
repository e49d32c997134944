// DeviceRuntime over the CUDA runtime.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "tensor/delay_cuda.h"
#include "tensor/device_capability.h"
#include "tensor/device_runtime.h"
#include "tensor/fill_cuda.h"
#include "tensor/gpu_check.h"
#include "tensor/gpu_launch.h"
#include "tensor/per_card.h"
#include "tensor/recorded_launches.h"

namespace atom {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

FillKind fill_kind(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return FillKind::kFloat32;
    case DType::kFloat16:
      return FillKind::kFloat16;
    case DType::kBFloat16:
      return FillKind::kBFloat16;
    default:
      CHECK(dtype_size(dtype) == 1);
      return FillKind::kBytes;
  }
}

// While this thread records: what the runtime refused first. A recording can fail without harm to
// the device, so it is answered and not fatal.
thread_local cudaError_t* recording_error = nullptr;

// True when `error` is none, or one of a recording, which is kept.
bool is_answered(cudaError_t error) {
  if (error == cudaSuccess) return true;
  if (recording_error == nullptr) return false;
  if (*recording_error == cudaSuccess) *recording_error = error;
  return true;
}

// For calls that enqueue.
#define CHECK_ENQUEUED(call)                                                       \
  do {                                                                             \
    if (const cudaError_t error_ = (call); !is_answered(error_)) {                 \
      ::atom::check_failed(#call, cudaGetErrorString(error_), __FILE__, __LINE__); \
    }                                                                              \
  } while (false)

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream, int64_t num_launches)
      : graph_(graph), stream_(stream), num_launches_(num_launches) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  void launch() override { GPU_CHECK(cudaGraphLaunch(graph_, stream_)); }
  int64_t num_launches() const { return num_launches_; }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  int64_t num_launches_;
};

class CudaEvent : public DeviceEvent {
 public:
  CudaEvent(Device device, cudaStream_t stream) : stream_(stream) {
    GPU_CHECK(cudaSetDevice(device.index));
    GPU_CHECK(cudaEventCreate(&event_));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  void mark() override { GPU_CHECK(cudaEventRecord(event_, stream_)); }

  bool is_done() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    GPU_CHECK(state);
    return true;
  }

  void wait() const override { GPU_CHECK(cudaEventSynchronize(event_)); }

  std::chrono::nanoseconds since(const DeviceEvent& earlier) const override {
    float milliseconds = 0;
    GPU_CHECK(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_));
    return std::chrono::nanoseconds(static_cast<int64_t>(double{milliseconds} * 1e6));
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class CudaQueue : public DeviceQueue {
 public:
  explicit CudaQueue(Device device) : device_(device) {
    GPU_CHECK(cudaSetDevice(device.index));
    GPU_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaQueue() override {
    cudaSetDevice(device_.index);  // a thread without a card would open one
    cudaStreamDestroy(stream_);
  }

  Device device() const override { return device_; }
  void* handle() const override { return stream_; }

  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    CHECK_ENQUEUED(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }

  void copy_rows(void* to,
                 int64_t to_stride,
                 const void* from,
                 int64_t from_stride,
                 int64_t row_size,
                 int64_t num_rows) override {
    if (row_size == 0 || num_rows == 0) return;
    CHECK_ENQUEUED(cudaMemcpy2DAsync(
        to, to_stride, from, from_stride, row_size, num_rows, cudaMemcpyDefault, stream_));
  }

  void fill_rows(
      void* data, int64_t stride, uint8_t value, int64_t row_size, int64_t num_rows) override {
    if (row_size == 0 || num_rows == 0) return;
    if (num_rows == 1 || stride == row_size) {
      CHECK_ENQUEUED(cudaMemsetAsync(data, value, num_rows * row_size, stream_));
    } else {
      CHECK_ENQUEUED(cudaMemset2DAsync(data, stride, value, row_size, num_rows, stream_));
    }
  }

  void fill_random(void* data, DType dtype, int64_t count, const RandomFill& fill) override {
    fill_random_cuda(data,
                     fill_kind(dtype),
                     count,
                     fill.key,
                     fill.center,
                     fill.half_width,
                     fill.byte_mask,
                     stream_);
    check_gpu_launch("fill_random");
  }

  void synchronize() override { GPU_CHECK(cudaStreamSynchronize(stream_)); }

  std::unique_ptr<DeviceEvent> create_event() override {
    return std::make_unique<CudaEvent>(device_, stream_);
  }

  void delay(std::chrono::nanoseconds duration) override {
    GPU_CHECK(delay_cuda(duration.count(), stream_));
  }

  void begin_recording() override {
    GPU_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    recording_result_ = cudaSuccess;
    recording_error = &recording_result_;
  }

  Result<std::unique_ptr<DeviceGraph>> end_recording() override {
    recording_error = nullptr;
    cudaGraph_t recorded = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &recorded);
    if (recording_result_ == cudaSuccess) recording_result_ = ended;
    cudaGraphExec_t graph = nullptr;
    size_t num_nodes = 0;
    if (recording_result_ == cudaSuccess) {
      GPU_CHECK(cudaGraphGetNodes(recorded, nullptr, &num_nodes));
      recording_result_ = cudaGraphInstantiate(&graph, recorded, 0);
    }
    if (recorded != nullptr) GPU_CHECK(cudaGraphDestroy(recorded));
    if (recording_result_ != cudaSuccess) {
      cudaGetLastError();  // it is answered here
      return internal_error("{}", cudaGetErrorString(recording_result_));
    }
    return std::unique_ptr<DeviceGraph>(
        std::make_unique<CudaGraph>(graph, stream_, static_cast<int64_t>(num_nodes)));
  }

 private:
  Device device_;
  cudaStream_t stream_ = nullptr;
  cudaError_t recording_result_ = cudaSuccess;
};

class CudaRuntime : public DeviceRuntime {
 public:
  CudaRuntime(Device device, DeviceFacts facts) : device_(device), facts_(std::move(facts)) {}

  Device device() const override { return device_; }
  const DeviceFacts& facts() const override { return facts_; }

  void make_current() const override { GPU_CHECK(cudaSetDevice(device_.index)); }

  bool can_reach(const DeviceRuntime& other) const override {
    int reaches = 0;
    GPU_CHECK(cudaDeviceCanAccessPeer(&reaches, device_.index, other.device().index));
    return reaches != 0;
  }

  Memory memory() const override {
    make_current();
    size_t free = 0, total = 0;
    GPU_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  std::shared_ptr<void> allocate(int64_t bytes) override {
    num_allocations_.fetch_add(1, std::memory_order_relaxed);
    make_current();
    void* data = nullptr;
    if (cudaMalloc(&data, bytes > 0 ? bytes : 1) != cudaSuccess) {
      cudaGetLastError();  // it is answered here
      throw std::bad_alloc();
    }
    return {data, [index = device_.index](void* memory) {
              cudaSetDevice(index);
              cudaFree(memory);
            }};
  }

  int64_t num_allocations() const override {
    return num_allocations_.load(std::memory_order_relaxed);
  }

  std::shared_ptr<void> allocate_pinned(int64_t bytes) override {
    make_current();
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes > 0 ? bytes : 1) != cudaSuccess) {
      cudaGetLastError();
      throw std::bad_alloc();
    }
    return {data, [index = device_.index](void* memory) {
              cudaSetDevice(index);
              cudaFreeHost(memory);
            }};
  }

  std::unique_ptr<DeviceQueue> create_queue() override {
    return std::make_unique<CudaQueue>(device_);
  }

 private:
  Device device_;
  DeviceFacts facts_;
  std::atomic<int64_t> num_allocations_{0};
};

// Why the runtime finds no card, and what to do about it.
Status no_card(cudaError_t error) {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);  // 0 where there is none
  if (driver == 0) {
    return unavailable(
        "no NVIDIA driver was found: install it (https://www.nvidia.com/drivers, or the package "
        "nvidia-driver of the distribution), or start the container with --gpus all");
  }
  if (error == cudaErrorInsufficientDriver) {
    return unavailable(
        "the NVIDIA driver is for CUDA {}, and this build needs CUDA {}: install a "
        "newer driver (https://www.nvidia.com/drivers)",
        version_text(driver),
        version_text(CUDART_VERSION));
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return unavailable(
        "the NVIDIA driver shows no GPU: CUDA_VISIBLE_DEVICES hides it, or the container was "
        "started without --gpus all");
  }
  return unavailable("no NVIDIA GPU can be used: {}", cudaGetErrorString(error));
}

// A context on the card, which is the first thing that needs some of its memory.
Status open_context(int index, const DeviceFacts& card) {
  const cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) {
    return resource_exhausted("{}: its memory is taken; nvidia-smi shows by which processes",
                              card.name);
  }
  if (error == cudaErrorDevicesUnavailable) {
    return unavailable(
        "{}: another process has it for itself, or it is in a mode that forbids "
        "computing; nvidia-smi shows both",
        card.name);
  }
  return unavailable("{} cannot be used: {}", card.name, cudaGetErrorString(error));
}

Result<std::vector<DeviceFacts>> find_cards() {
  int num_cards = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_cards);
  if (error != cudaSuccess || num_cards == 0) {
    cudaGetLastError();
    return no_card(error);
  }
  int driver = 0, runtime = 0;
  GPU_CHECK(cudaDriverGetVersion(&driver));
  GPU_CHECK(cudaRuntimeGetVersion(&runtime));
  std::vector<DeviceFacts> cards;
  for (int i = 0; i < std::min(num_cards, kMaxCards); ++i) {
    cudaDeviceProp card;
    GPU_CHECK(cudaGetDeviceProperties(&card, i));
    cards.push_back({card.name,
                     card.major,
                     card.minor,
                     card.multiProcessorCount,
                     version_text(driver),
                     version_text(runtime)});
  }
  RETURN_IF_ERROR(check_capability(cards.front()));
  return cards;
}

const Result<std::vector<DeviceFacts>>& cards() {
  static const Result<std::vector<DeviceFacts>> found = find_cards();
  return found;
}

Result<std::unique_ptr<CudaRuntime>> open_card(int index) {
  const DeviceFacts &card = (*cards())[index], &first = cards()->front();
  if (card.name != first.name || card.num_multiprocessors != first.num_multiprocessors) {
    return unavailable(
        "card {} is {} with {} multiprocessors, card 0 {} with {}: cards that one process uses "
        "have to be alike; CUDA_VISIBLE_DEVICES chooses some",
        index,
        card.name,
        card.num_multiprocessors,
        first.name,
        first.num_multiprocessors);
  }
  RETURN_IF_ERROR(open_context(index, card));
  return std::make_unique<CudaRuntime>(Device{DeviceType::kCuda, index}, card);
}

// Opened when it is asked for: a process takes no memory of cards that it does not use.
struct Card {
  std::once_flag once;
  std::optional<Result<std::unique_ptr<CudaRuntime>>> runtime;
};

}  // namespace

void check_gpu_launch(const char* kernel) {
  const gpuError_t error = ATOM_GPU(GetLastError)();
  if (is_answered(error)) return;
  check_failed(kernel, ATOM_GPU(GetErrorString)(error), __FILE__, __LINE__);
}

Result<std::span<const DeviceFacts>> device_facts(DeviceType type) {
  if (type != DeviceType::kCuda) return invalid_argument("the CPU has no cards");
  if (!cards().ok()) return cards().status();
  return std::span<const DeviceFacts>(*cards());
}

Result<DeviceRuntime*> device_runtime(Device device) {
  if (device.type != DeviceType::kCuda) {
    return invalid_argument("the CPU needs no device runtime");
  }
  if (!cards().ok()) return cards().status();
  const int count = static_cast<int>(cards()->size());
  if (device.index < 0 || device.index >= count) {
    return unavailable("there is no card {}: this process sees {}", device.index, count);
  }
  static std::array<Card, kMaxCards> opened;
  Card& card = opened[device.index];
  std::call_once(card.once, [&] { card.runtime = open_card(device.index); });
  if (!card.runtime->ok()) return card.runtime->status();
  return (*card.runtime)->get();
}

int64_t num_recorded_launches(const DeviceGraph& graph) {
  return static_cast<const CudaGraph&>(graph).num_launches();
}

std::string device_backends() {
  return "CUDA " + version_text(CUDART_VERSION);
}

}  // namespace atom
