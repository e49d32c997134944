// For tests of operators: random tensors, their values in double, and the distance to expected
// ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/variant.h"
#include "tensor/device_runtime.h"
#include "tensor/dispatch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// The GPU that tests run on, or null.
inline DeviceRuntime* test_gpu() {
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  return runtime.ok() ? *runtime : nullptr;
}

// Of the GPU's only where there is one; with candidates that ATOM_OP_VARIANT names.
inline std::vector<const char*> all_variants() {
  static const std::vector<std::string> named = named_variants();
  std::vector<const char*> names = {"reference", "avx2", "avx512", "amx"};
  if (test_gpu() != nullptr)
    names.insert(
        names.end(),
        {"cuda", "mma", "sm90", "fixed", "stream", "cublaslt", "vector", "groups", "group_vector"});
  for (const std::string& name : named) {
    const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
    if (!is_known && test_gpu() != nullptr) names.push_back(name.c_str());
  }
  return names;
}
inline const std::vector<const char*> kAllVariants = all_variants();
inline bool is_gpu_variant(const std::string& name) {
  return name != "reference" && name != "amx" && !name.starts_with("avx");
}
inline const std::vector<DType> kFloatDTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Uniform in [-scale, scale), the same for the same seed.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed, float scale = 1.0f) {
  Tensor tensor = Tensor::zeros(shape, dtype);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float unit = static_cast<float>(state >> 40) * 0x1p-24f;
      tensor.data<T>()[i] = from_float<T>((unit * 2 - 1) * scale);
    }
  });
  return tensor;
}

inline Tensor copy_of(const Tensor& tensor) {
  Tensor copy = Tensor::zeros(tensor.shape(), tensor.dtype());
  copy_convert(tensor, copy);
  return copy;
}

// The tensors of one call where its variant computes: themselves on the CPU, copies on the GPU that
// share memory where the originals do.
class Placed {
 public:
  Placed(bool on_gpu, ThreadPool& pool, const std::vector<Tensor>& tensors) : stream_(&pool) {
    if (!on_gpu) return;
    queue_ = test_gpu()->create_queue();
    stream_ = Stream(&pool, queue_.get());
    for (const Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.num_elements() > 0) add_span(tensor);
    }
    for (Span& span : spans_) {
      span.copy = Tensor::empty({span.end - span.begin}, DType::kUInt8, queue_->device());
      queue_->copy(span.copy.raw_data(), span.begin, span.end - span.begin);
    }
    queue_->synchronize();
  }

  const Stream& stream() const { return stream_; }

  Tensor operator()(const Tensor& tensor) const {
    for (const Span& span : spans_) {
      char* data = static_cast<char*>(tensor.raw_data());
      if (data < span.begin || data >= span.end) continue;
      return tensor.at(static_cast<char*>(span.copy.raw_data()) + (data - span.begin),
                       queue_->device());
    }
    return tensor;
  }

  // Brings the results back.
  void finish() {
    for (Span& span : spans_) {
      queue_->copy(span.begin, span.copy.raw_data(), span.end - span.begin);
    }
    if (queue_ != nullptr) queue_->synchronize();
  }

 private:
  struct Span {
    char* begin;
    char* end;
    Tensor copy;
  };

  void add_span(const Tensor& tensor) {
    int64_t last = 0;
    for (int dim = 0; dim < tensor.rank(); ++dim) {
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    char* begin = static_cast<char*>(tensor.raw_data());
    Span added{begin, begin + (last + 1) * dtype_size(tensor.dtype()), {}};
    for (size_t i = 0; i < spans_.size();) {
      if (spans_[i].end <= added.begin || added.end <= spans_[i].begin) {
        ++i;
        continue;
      }
      added.begin = std::min(added.begin, spans_[i].begin);
      added.end = std::max(added.end, spans_[i].end);
      spans_.erase(spans_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    spans_.push_back(std::move(added));
  }

  std::unique_ptr<DeviceQueue> queue_;
  Stream stream_;
  std::vector<Span> spans_;
};

// Calls `call(placed)`, which runs the variant on placed(tensor) for each of `tensors`, and returns
// what it returns: false when the variant cannot run the call here.
template <typename Call>
bool run_variant(const std::string& variant,
                 ThreadPool& pool,
                 const std::vector<Tensor>& tensors,
                 Call&& call) {
  Placed placed(is_gpu_variant(variant), pool, tensors);
  const bool ran = call(placed);
  placed.finish();
  return ran;
}

// In row-major order whatever the strides.
inline std::vector<double> values_of(const Tensor& tensor) {
  Tensor floats = Tensor::zeros(tensor.shape(), DType::kFloat32);
  copy_convert(tensor, floats);
  return {floats.data<float>(), floats.data<float>() + floats.num_elements()};
}

// Half a unit in the last place of a dtype, relative.
inline double half_ulp(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

inline double rounded(double value, DType dtype) {
  double result = value;
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    result = to_float(from_float<T>(static_cast<float>(value)));
  });
  return result;
}

// |got - expected| <= absolute + relative * |expected|, for each element.
inline void expect_close(const Tensor& got,
                         const std::vector<double>& expected,
                         double relative,
                         double absolute,
                         const std::string& what) {
  const std::vector<double> values = values_of(got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = absolute + relative * std::abs(expected[i]);
    ASSERT_LE(std::abs(values[i] - expected[i]), allowed)
        << what << ": element " << i << " is " << values[i] << ", should be " << expected[i];
    ASSERT_FALSE(std::isnan(values[i])) << what << ": element " << i;
  }
}

}  // namespace atom::ops
