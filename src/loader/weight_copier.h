// Brings pieces of checkpoint tensors to where parameters live: by conversion in place on the CPU,
// through pinned buffers on a device, each worker with two of them, so that it converts the next
// piece while the last one travels.
#pragma once

#include <memory>
#include <vector>

#include "nn/parameter.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

class WeightCopier {
 public:
  // For the workers of the stream's pool.
  explicit WeightCopier(const Stream& stream);
  ~WeightCopier();

  // Like copy_convert; `target` is contiguous when it is on a device. `source` is not needed when
  // the call returns. One thread per worker. Throws std::bad_alloc when there is no pinned memory.
  void copy(int worker, const Tensor& source, const Tensor& target);

  // The same through `encoder`, on a device: it reads the rows from the pinned buffer.
  void encode(int worker, const Tensor& source, RowEncoder* encoder, int64_t first_row);

  // Waits until everything has arrived.
  void finish();

 private:
  struct Buffer;

  // A buffer of `worker` that is no longer read, of at least `size` bytes.
  Buffer& next_buffer(int worker, int64_t size);

  const Device device_;
  ThreadPool* const pool_;
  std::vector<std::vector<std::unique_ptr<Buffer>>> buffers_;  // by worker
  std::vector<size_t> next_;                                   // by worker
};

}  // namespace atom
