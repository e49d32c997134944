#include "runner/host_mirror.h"

#include "tensor/device_arena.h"
#include "tensor/pinned_tensor.h"

namespace atom {

HostMirror::HostMirror(const Stream& stream, int64_t size)
    : stream_(&stream),
      host_(pinned_tensor(stream.device(), {size}, DType::kInt32)),
      device_(stream.device().is_cpu() ? host_ : resident_tensor(stream, {size}, DType::kInt32)) {}

Tensor HostMirror::view(int64_t begin, const Shape& shape) const {
  return device_.narrow(0, begin, shape.num_elements()).view(shape);
}

void HostMirror::send(int64_t begin, int64_t end) const {
  if (stream_->device().is_cpu()) return;
  stream_->queue().copy(device_.data<int32_t>() + begin,
                        host_.data<int32_t>() + begin,
                        (end - begin) * int64_t{sizeof(int32_t)});
}

void HostMirror::send_columns(int64_t begin,
                              int64_t num_rows,
                              int64_t row_size,
                              int64_t num_columns) const {
  if (stream_->device().is_cpu()) return;
  constexpr int64_t kElement = sizeof(int32_t);
  stream_->queue().copy_rows(device_.data<int32_t>() + begin,
                             row_size * kElement,
                             host_.data<int32_t>() + begin,
                             row_size * kElement,
                             num_columns * kElement,
                             num_rows);
}

void HostMirror::fetch(int64_t begin, int64_t end) const {
  if (stream_->device().is_cpu()) return;
  stream_->queue().copy(host_.data<int32_t>() + begin,
                        device_.data<int32_t>() + begin,
                        (end - begin) * int64_t{sizeof(int32_t)});
}

}  // namespace atom
