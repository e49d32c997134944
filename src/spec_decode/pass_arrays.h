// The arrays of int32 that passes of a draft model read, one behind the other in a buffer and sent
// at once. Where each lies depends on the shapes before it only. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/host_mirror.h"

namespace atom {

class PassArrays {
 public:
  // Arrays begin at multiples of this, in elements: 64 bytes.
  static constexpr int64_t kAlignment = 16;

  static constexpr int64_t aligned(int64_t size) {
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Begins with the buffer's next host side. `buffer` outlives this.
  explicit PassArrays(HostMirror& buffer) : buffer_(buffer) { buffer_.rotate(); }

  Tensor add(std::span<const int32_t> values) {
    std::ranges::copy(values, buffer_.host() + end_);
    return take({std::ssize(values)});
  }

  // [num_seqs, longest]; -1 behind a sequence's blocks.
  Tensor add_tables(std::span<const std::span<const int32_t>> tables) {
    size_t width = 1;
    for (const auto& blocks : tables) width = std::max(width, blocks.size());
    const auto columns = static_cast<int64_t>(width);
    int32_t* row = buffer_.host() + end_;
    std::fill_n(row, std::ssize(tables) * columns, -1);
    for (const auto& blocks : tables) {
      std::ranges::copy(blocks, row);
      row += columns;
    }
    return take({std::ssize(tables), columns});
  }

  void send() const { buffer_.send(0, end_); }

 private:
  Tensor take(const Shape& shape) {
    const int64_t begin = end_;
    end_ += aligned(shape.num_elements());
    CHECK(end_ <= buffer_.size());
    return buffer_.view(begin, shape);
  }

  HostMirror& buffer_;
  int64_t end_ = 0;
};

}  // namespace atom
