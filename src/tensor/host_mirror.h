// A buffer of int32 values that the host writes and operators read, or the other way round: the
// same memory on the CPU, pinned buffers and their twin on a device. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Steps that are enqueued on a device and not finished, at most. The buffers of a step's host side
// come in as many copies.
constexpr int kMaxDeviceSteps = 2;

class HostMirror {
 public:
  // `stream` outlives the buffer. On a device the host's side comes in `num_hosts` copies, of which
  // one is current.
  HostMirror(const Stream& stream, int64_t size, int num_hosts = 1);

  // Makes the copy that was current the longest time ago the current one.
  void rotate() { current_ = (current_ + 1) % hosts_.size(); }

  int32_t* host() const { return hosts_[current_].data<int32_t>(); }
  int64_t size() const { return device_.num_elements(); }

  // Values [begin, begin + size of shape) where operators read them.
  Tensor view(int64_t begin, const Shape& shape) const;

  // On a device: enqueues the copy of values [begin, end). The host leaves them alone until the
  // queue has passed it.
  void send(int64_t begin, int64_t end) const;
  // The same through another queue of the device, past what the stream's own has not done yet.
  void send_through(DeviceQueue& queue, int64_t begin, int64_t end) const;
  // The first `num_columns` of each row of a matrix that begins at `begin`.
  void send_columns(int64_t begin, int64_t num_rows, int64_t row_size, int64_t num_columns) const;
  // The other way: enqueues the copy to the host.
  void fetch(int64_t begin, int64_t end) const;
  void fetch_columns(int64_t begin, int64_t num_rows, int64_t row_size, int64_t num_columns) const;

 private:
  void copy(int32_t* to, const int32_t* from, int64_t begin, int64_t end) const;
  void copy_columns(int32_t* to,
                    const int32_t* from,
                    int64_t num_rows,
                    int64_t row_size,
                    int64_t num_columns) const;

  const Stream* stream_;
  std::vector<Tensor> hosts_;  // [size] int32 each
  size_t current_ = 0;
  Tensor device_;  // [size] int32; the only host_ itself on the CPU
};

}  // namespace atom
