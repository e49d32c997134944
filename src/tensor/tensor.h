// A typed, strided view of memory on a device. Copying a Tensor copies the view, never the data;
// storage is reference-counted and freed with its last view. No autograd, no lazy evaluation. A
// view may be read by several threads; who writes is the owner's business.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/numeric.h"
#include "tensor/shape.h"

namespace atom {

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};

class Tensor {
 public:
  // An undefined tensor: no data, no shape.
  Tensor() = default;

  // A contiguous view of memory that `owner` keeps alive (null: the caller does).
  Tensor(void* data,
         DType dtype,
         const Shape& shape,
         std::shared_ptr<const void> owner = nullptr,
         Device device = {});

  // Uninitialised memory, 64-byte aligned; large tensors on huge pages where the system has them.
  static Tensor empty(const Shape& shape, DType dtype, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype);
  // A view of known dtype and shape without memory: for plans and dry runs.
  static Tensor meta(const Shape& shape, DType dtype) { return Tensor(nullptr, dtype, shape); }

  // The same view, of memory elsewhere that the caller keeps alive.
  Tensor at(void* data, Device device) const;

  bool defined() const { return shape_.rank() > 0; }
  bool has_data() const { return data_ != nullptr; }
  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int dim) const { return shape_[dim < 0 ? dim + rank() : dim]; }
  int64_t stride(int dim) const { return strides_[dim < 0 ? dim + rank() : dim]; }  // in elements
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * dtype_size(dtype_); }
  bool is_contiguous() const;

  template <typename T>
  T* data() const {
    CHECK(dtype_ == DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }
  void* raw_data() const { return data_; }

  // Rows [begin, begin + length) of dimension `dim`, sharing the storage.
  Tensor narrow(int dim, int64_t begin, int64_t length) const;
  // The same elements under another shape; the tensor must be contiguous.
  Tensor view(const Shape& shape) const;

  // "bfloat16[2, 3]"
  std::string to_string() const;

 private:
  void* data_ = nullptr;
  Device device_;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
  Shape strides_;
  std::shared_ptr<const void> owner_;
};

// Gives the memory of a contiguous tensor back to the system, as far as it fills whole pages: its
// content is lost, the tensor stays valid. For sources that are consumed piece by piece.
void discard_content(const Tensor& tensor);

// Element by element from `source` to `target` of the same shape, rounding to the target's dtype
// (float32, float16, bfloat16 in any combination; otherwise equal dtypes). Both may be strided; the
// last dimension must be contiguous in both. Runs on the calling thread, both on the CPU.
void copy_convert(const Tensor& source, const Tensor& target);

}  // namespace atom
