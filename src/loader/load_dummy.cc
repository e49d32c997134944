#include "loader/load_dummy.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "loader/model_memory.h"
#include "tensor/dispatch.h"
#include "tensor/fill.h"
#include "tensor/random_value.h"

namespace atom {
namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // elements, a multiple of kRandomElementsPerHash
// Uniform in [-kHalfWidth, kHalfWidth]: standard deviation 0.02.
constexpr float kHalfWidth = 0.02f * 1.7320508f;

// Scales of quantized tensors are made up as this, near which real ones are: never zero, and E4M3
// values by it come near the other weights.
constexpr float kScale = 0.05f;
// Those of FP4 are exponents, by which its values come near the other weights: 2^-7.
constexpr uint8_t kScaleExponent = 120;

bool is_scale(std::string_view name) {
  return name.ends_with("_scale");
}

// FNV-1a over the name, mixed with the seed.
uint64_t key_of(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mix_bits(hash ^ mix_bits(seed + 0x9e3779b97f4a7c15u));
}

template <typename T>
void fill_float(T* data, int64_t begin, int64_t end, uint64_t key, float center, float half_width) {
  const float step = half_width / 32767.5f;
  for (int64_t i = begin; i < end; i += kRandomElementsPerHash) {
    const uint64_t bits = random_bits(key, i / kRandomElementsPerHash);
    const auto count = static_cast<int>(std::min(end - i, kRandomElementsPerHash));
    for (int j = 0; j < count; ++j) {
      data[i + j] = from_float<T>(center + random_step(bits, j) * step);
    }
  }
}

void fill_bytes(uint8_t* data, int64_t begin, int64_t end, uint64_t key, uint8_t mask) {
  for (int64_t i = begin; i < end; ++i) {
    data[i] = static_cast<uint8_t>(random_bits(key, i)) & mask;
  }
}

bool is_norm(const Tensor& tensor, std::string_view name) {
  return tensor.rank() == 1 && name.find("norm") != std::string_view::npos;
}

// Without the exponent's upper bit an E4M3 value is below 1 and never NaN.
uint8_t byte_mask(DType dtype) {
  return dtype == DType::kFloat8E4M3 ? 0xbf : 0xff;
}

void fill_on_pool(const Tensor& tensor, const RandomFill& fill, ThreadPool& pool) {
  const int64_t count = tensor.num_elements();
  if (dtype_size(tensor.dtype()) == 1) {
    uint8_t* data = static_cast<uint8_t*>(tensor.raw_data());
    pool.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      fill_bytes(data, begin, end, fill.key, fill.byte_mask);
    });
    return;
  }
  dispatch_float(tensor.dtype(), [&]<typename T>(TypeTag<T>) {
    T* data = tensor.data<T>();
    pool.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      fill_float(data, begin, end, fill.key, fill.center, fill.half_width);
    });
  });
}

void fill_random(const Tensor& tensor, const RandomFill& fill, const Stream& stream) {
  if (tensor.device().is_cpu()) return fill_on_pool(tensor, fill, stream.pool());
  stream.queue().fill_random(tensor.raw_data(), tensor.dtype(), tensor.num_elements(), fill);
}

void fill_scales(const Tensor& tensor, const Stream& stream) {
  if (tensor.dtype() != DType::kUInt8) {
    return fill_random(tensor, {.key = 0, .center = kScale, .half_width = 0}, stream);
  }
  CHECK(tensor.device().is_cpu());
  std::memset(tensor.raw_data(), kScaleExponent, tensor.num_bytes());
}

void fill_random(const Tensor& tensor, std::string_view name, uint64_t seed, const Stream& stream) {
  if (tensor.dtype() == DType::kInt32 || tensor.dtype() == DType::kInt64) {
    return fill_zero(stream, tensor);
  }
  const float center = is_norm(tensor, name) ? 1.0f : 0.0f;
  fill_random(tensor, {key_of(name, seed), center, kHalfWidth, byte_mask(tensor.dtype())}, stream);
}

}  // namespace

Status load_dummy(Module* model, DummyWeights kind, uint64_t seed, const Stream& stream) {
  CHECK(kind != DummyWeights::kNone);
  RETURN_IF_ERROR(allocate_or_fail(model, stream));
  for (const NamedParameter& named : model->named_parameters()) {
    const Tensor& tensor = named.parameter->data();
    // Memory may hold codes of FP8 that are no number.
    const bool must_be_numbers = tensor.dtype() == DType::kFloat8E4M3;
    if (is_scale(named.name)) {
      fill_scales(tensor, stream);
    } else if (kind == DummyWeights::kRandom) {
      fill_random(tensor, named.name, seed, stream);
    } else if (kind == DummyWeights::kZero || must_be_numbers) {
      fill_zero(stream, tensor);
    }
    named.parameter->mark_loaded();
  }
  return finish_or_fail(model, stream);
}

}  // namespace atom
