#include "tensor/host_mirror.h"

#include "tensor/device_arena.h"
#include "tensor/pinned_tensor.h"

namespace atom {

HostMirror::HostMirror(const Stream& stream, int64_t size, int num_hosts) : stream_(&stream) {
  if (stream.device().is_cpu()) num_hosts = 1;
  for (int i = 0; i < num_hosts; ++i) {
    hosts_.push_back(pinned_tensor(stream.device(), {size}, DType::kInt32));
  }
  device_ = stream.device().is_cpu() ? hosts_[0] : resident_tensor(stream, {size}, DType::kInt32);
}

Tensor HostMirror::view(int64_t begin, const Shape& shape) const {
  return device_.narrow(0, begin, shape.num_elements()).view(shape);
}

void HostMirror::copy(int32_t* to, const int32_t* from, int64_t begin, int64_t end) const {
  if (stream_->device().is_cpu()) return;
  stream_->queue().copy(to + begin, from + begin, (end - begin) * int64_t{sizeof(int32_t)});
}

void HostMirror::copy_columns(int32_t* to,
                              const int32_t* from,
                              int64_t num_rows,
                              int64_t row_size,
                              int64_t num_columns) const {
  if (stream_->device().is_cpu()) return;
  constexpr int64_t kElement = sizeof(int32_t);
  stream_->queue().copy_rows(
      to, row_size * kElement, from, row_size * kElement, num_columns * kElement, num_rows);
}

void HostMirror::send(int64_t begin, int64_t end) const {
  copy(device_.data<int32_t>(), host(), begin, end);
}

void HostMirror::send_through(DeviceQueue& queue, int64_t begin, int64_t end) const {
  queue.copy(
      device_.data<int32_t>() + begin, host() + begin, (end - begin) * int64_t{sizeof(int32_t)});
}

void HostMirror::send_columns(int64_t begin,
                              int64_t num_rows,
                              int64_t row_size,
                              int64_t num_columns) const {
  copy_columns(device_.data<int32_t>() + begin, host() + begin, num_rows, row_size, num_columns);
}

void HostMirror::fetch(int64_t begin, int64_t end) const {
  copy(host(), device_.data<int32_t>(), begin, end);
}

void HostMirror::fetch_columns(int64_t begin,
                               int64_t num_rows,
                               int64_t row_size,
                               int64_t num_columns) const {
  copy_columns(host() + begin, device_.data<int32_t>() + begin, num_rows, row_size, num_columns);
}

}  // namespace atom
