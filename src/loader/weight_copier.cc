#include "loader/weight_copier.h"

namespace atom {
namespace {

constexpr size_t kBuffersPerWorker = 2;

DeviceRuntime& runtime_of(Device device) {
  const Result<DeviceRuntime*> runtime = device_runtime(device);
  CHECK(runtime.ok());
  return **runtime;
}

}  // namespace

struct WeightCopier::Buffer {
  std::unique_ptr<DeviceQueue> queue;
  std::shared_ptr<void> memory;
  int64_t size = 0;  // bytes
};

WeightCopier::WeightCopier(const Stream& stream)
    : device_(stream.device()),
      pool_(&stream.pool()),
      buffers_(device_.is_cpu() ? 0 : stream.pool().num_threads()),
      next_(buffers_.size()) {
  for (auto& buffers : buffers_) {
    for (size_t i = 0; i < kBuffersPerWorker; ++i) {
      buffers.push_back(std::make_unique<Buffer>());
      buffers.back()->queue = runtime_of(device_).create_queue();
    }
  }
}

WeightCopier::~WeightCopier() {
  finish();
}

WeightCopier::Buffer& WeightCopier::next_buffer(int worker, int64_t size) {
  Buffer& buffer = *buffers_[worker][next_[worker]++ % kBuffersPerWorker];
  DeviceRuntime& runtime = runtime_of(device_);
  runtime.make_current();
  buffer.queue->synchronize();
  if (buffer.size < size) {
    buffer.memory = runtime.allocate_pinned(size);
    buffer.size = size;
  }
  return buffer;
}

void WeightCopier::copy(int worker, const Tensor& source, const Tensor& target) {
  if (target.device().is_cpu()) return copy_convert(source, target);
  CHECK(target.is_contiguous());
  Buffer& buffer = next_buffer(worker, target.num_bytes());
  copy_convert(source, target.at(buffer.memory.get(), Device()));
  buffer.queue->copy(target.raw_data(), buffer.memory.get(), target.num_bytes());
}

void WeightCopier::encode(int worker,
                          const Tensor& source,
                          RowEncoder* encoder,
                          int64_t first_row) {
  CHECK(!device_.is_cpu());
  const Tensor rows = Tensor::meta(source.shape(), encoder->source_dtype());
  Buffer& buffer = next_buffer(worker, rows.num_bytes());
  copy_convert(source, rows.at(buffer.memory.get(), Device()));
  encoder->encode(
      Stream(pool_, buffer.queue.get()), rows.at(buffer.memory.get(), device_), first_row);
}

void WeightCopier::finish() {
  for (const auto& buffers : buffers_) {
    for (const auto& buffer : buffers) buffer->queue->synchronize();
  }
}

}  // namespace atom
