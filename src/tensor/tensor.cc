#include "tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/rounding.h"
#include "tensor/device_runtime.h"
#include "tensor/dispatch.h"

namespace atom {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Large tensors are mapped, not taken from the heap: freed ones go back to the system at once, and
// untouched pages cost nothing.
std::shared_ptr<void> map_pages(int64_t bytes) {
  const int64_t size = round_up(bytes, kHugePage);
  const int64_t reserved = size + kHugePage;
  void* mapping =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(aligned), size, MADV_HUGEPAGE);
  return {reinterpret_cast<void*>(aligned),
          [mapping, reserved](void*) { ::munmap(mapping, reserved); }};
}

std::shared_ptr<void> allocate(int64_t bytes, Device device) {
  if (!device.is_cpu()) {
    const Result<DeviceRuntime*> runtime = device_runtime(device);
    CHECK(runtime.ok());
    return (*runtime)->allocate(bytes);
  }
  if (bytes >= kHugePage) return map_pages(bytes);
  void* data = std::aligned_alloc(kAlignment, round_up(std::max<int64_t>(bytes, 1), kAlignment));
  if (data == nullptr) throw std::bad_alloc();
  return {data, std::free};
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= shape[dim];
  }
  return strides;
}

// Calls body(source row, target row, row length) for every row of the last dimension.
template <typename Body>
void for_each_row(
    const Tensor& source, const Tensor& target, int dim, char* from, char* to, const Body& body) {
  if (dim == source.rank() - 1) {
    body(from, to, source.size(dim));
    return;
  }
  const int64_t from_step = source.stride(dim) * dtype_size(source.dtype());
  const int64_t to_step = target.stride(dim) * dtype_size(target.dtype());
  for (int64_t i = 0; i < source.size(dim); ++i) {
    for_each_row(source, target, dim + 1, from + i * from_step, to + i * to_step, body);
  }
}

}  // namespace

std::string Shape::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < rank_; ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string(sizes_[dim]);
  }
  return text + "]";
}

Tensor::Tensor(
    void* data, DType dtype, const Shape& shape, std::shared_ptr<const void> owner, Device device)
    : data_(data),
      device_(device),
      dtype_(dtype),
      shape_(shape),
      strides_(contiguous_strides(shape)),
      owner_(std::move(owner)) {}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  std::shared_ptr<void> storage = allocate(shape.num_elements() * dtype_size(dtype), device);
  void* data = storage.get();
  return Tensor(data, dtype, shape, std::move(storage), device);
}

Tensor Tensor::at(void* data, Device device) const {
  Tensor result = *this;
  result.data_ = data;
  result.device_ = device;
  result.owner_ = nullptr;
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  std::memset(tensor.data_, 0, tensor.num_bytes());
  return tensor;
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int dim = rank() - 1; dim >= 0; --dim) {
    if (shape_[dim] != 1 && strides_[dim] != expected) return false;
    expected *= shape_[dim];
  }
  return true;
}

Tensor Tensor::narrow(int dim, int64_t begin, int64_t length) const {
  CHECK(dim < rank());
  CHECK(begin >= 0);
  CHECK(length >= 0);
  CHECK(begin + length <= shape_[dim]);
  Tensor result = *this;
  result.shape_[dim] = length;
  if (data_ != nullptr) {
    result.data_ = static_cast<char*>(data_) + begin * strides_[dim] * dtype_size(dtype_);
  }
  return result;
}

Tensor Tensor::view(const Shape& shape) const {
  CHECK(is_contiguous());
  CHECK(shape.num_elements() == num_elements());
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = contiguous_strides(shape);
  return result;
}

std::string Tensor::to_string() const {
  return std::string(dtype_name(dtype_)) + shape_.to_string();
}

void discard_content(const Tensor& tensor) {
  CHECK(tensor.is_contiguous());
  const auto begin = reinterpret_cast<uintptr_t>(tensor.raw_data());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (begin + tensor.num_bytes()) / kHugePage * kHugePage;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void copy_convert(const Tensor& source, const Tensor& target) {
  CHECK(source.shape() == target.shape());
  CHECK(source.device().is_cpu());
  CHECK(target.device().is_cpu());
  CHECK((source.stride(-1) == 1 || source.size(-1) <= 1));
  CHECK((target.stride(-1) == 1 || target.size(-1) <= 1));
  if (source.num_elements() == 0) return;
  char* from = static_cast<char*>(source.raw_data());
  char* to = static_cast<char*>(target.raw_data());
  if (source.dtype() == target.dtype()) {
    const int64_t element_size = dtype_size(source.dtype());
    for_each_row(source, target, 0, from, to, [&](const char* s, char* t, int64_t n) {
      std::memcpy(t, s, n * element_size);
    });
    return;
  }
  dispatch_float(source.dtype(), [&]<typename S>(TypeTag<S>) {
    dispatch_float(target.dtype(), [&]<typename T>(TypeTag<T>) {
      for_each_row(source, target, 0, from, to, [](const char* s, char* t, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          S value;
          std::memcpy(&value, s + i * sizeof(S), sizeof(S));
          reinterpret_cast<T*>(t)[i] = from_float<T>(to_float(value));
        }
      });
    });
  });
}

}  // namespace atom
