// A buffer of int32 values that the host writes and operators read: the same memory on the CPU, a
// pinned buffer and its twin on a device. One thread.
#pragma once

#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

class HostMirror {
 public:
  // `stream` outlives the buffer.
  HostMirror(const Stream& stream, int64_t size);

  int32_t* host() const { return host_.data<int32_t>(); }
  int64_t size() const { return host_.num_elements(); }

  // Values [begin, begin + size of shape) where operators read them.
  Tensor view(int64_t begin, const Shape& shape) const;

  // On a device: enqueues the copy of values [begin, end). The host leaves them alone until the
  // queue has passed it.
  void send(int64_t begin, int64_t end) const;
  // The first `num_columns` of each row of a matrix that begins at `begin`.
  void send_columns(int64_t begin, int64_t num_rows, int64_t row_size, int64_t num_columns) const;
  // The other way: enqueues the copy of values [begin, end) to the host.
  void fetch(int64_t begin, int64_t end) const;

 private:
  const Stream* stream_;
  Tensor host_;    // [size] int32
  Tensor device_;  // [size] int32; host_ itself on the CPU
};

}  // namespace atom
