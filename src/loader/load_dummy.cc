#include "loader/load_dummy.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "loader/model_memory.h"
#include "tensor/dispatch.h"

namespace atom {
namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // elements, a multiple of kPerHash
constexpr int64_t kPerHash = 4;               // elements drawn from one hash, 16 bits each
// Uniform in [-kHalfWidth, kHalfWidth]: standard deviation 0.02.
constexpr float kHalfWidth = 0.02f * 1.7320508f;

// Scales of quantised tensors are made up as this, near which real ones are: never zero, and E4M3
// values by it come near the other weights.
constexpr float kScale = 0.05f;

bool is_scale(std::string_view name) {
  return name.ends_with("_scale");
}

// SplitMix64's finaliser: a bijection whose output bits all depend on every input bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a over the name, mixed with the seed.
uint64_t stream_of(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mix(hash ^ mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t draw(uint64_t stream, int64_t index) {
  return mix(stream + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u);
}

template <typename T>
void fill_float(T* data, int64_t begin, int64_t end, uint64_t stream, float center) {
  constexpr float kStep = kHalfWidth / 32767.5f;
  for (int64_t i = begin; i < end; i += kPerHash) {
    uint64_t bits = draw(stream, i / kPerHash);
    const int64_t count = end - i < kPerHash ? end - i : kPerHash;
    for (int64_t j = 0; j < count; ++j, bits >>= 16) {
      const float uniform = static_cast<float>(static_cast<int32_t>(bits & 0xffff)) - 32767.5f;
      data[i + j] = from_float<T>(center + uniform * kStep);
    }
  }
}

void fill_bytes(uint8_t* data, int64_t begin, int64_t end, uint64_t stream, uint8_t mask) {
  for (int64_t i = begin; i < end; ++i) {
    data[i] = static_cast<uint8_t>(draw(stream, i)) & mask;
  }
}

void fill_random(const Tensor& tensor, std::string_view name, uint64_t seed, ThreadPool* pool) {
  const uint64_t stream = stream_of(name, seed);
  const int64_t count = tensor.num_elements();
  switch (tensor.dtype()) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16: {
      const bool is_norm = tensor.rank() == 1 && name.find("norm") != std::string_view::npos;
      dispatch_float(tensor.dtype(), [&]<typename T>(TypeTag<T>) {
        T* data = tensor.data<T>();
        pool->parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
          fill_float(data, begin, end, stream, is_norm ? 1.0f : 0.0f);
        });
      });
      return;
    }
    case DType::kFloat8E4M3:
    case DType::kInt8:
    case DType::kUInt8: {
      // Without the exponent's upper bit an E4M3 value is below 1 and never NaN.
      const uint8_t mask = tensor.dtype() == DType::kFloat8E4M3 ? 0xbf : 0xff;
      uint8_t* data = static_cast<uint8_t*>(tensor.raw_data());
      pool->parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
        fill_bytes(data, begin, end, stream, mask);
      });
      return;
    }
    case DType::kInt32:
    case DType::kInt64:
      std::memset(tensor.raw_data(), 0, tensor.num_bytes());
      return;
  }
}

void fill_zero(const Tensor& tensor, ThreadPool* pool) {
  char* data = static_cast<char*>(tensor.raw_data());
  pool->parallel_for(tensor.num_bytes(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, end - begin);
  });
}

}  // namespace

Status load_dummy(Module* model, DummyWeights kind, uint64_t seed, ThreadPool* pool) {
  CHECK(kind != DummyWeights::kNone);
  RETURN_IF_ERROR(allocate_or_fail(model));
  for (const NamedParameter& named : model->named_parameters()) {
    const Tensor& tensor = named.parameter->data();
    // Memory may hold codes of FP8 that are no number.
    const bool must_be_numbers = tensor.dtype() == DType::kFloat8E4M3;
    if (is_scale(named.name)) {
      std::fill_n(tensor.data<float>(), tensor.num_elements(), kScale);
    } else if (kind == DummyWeights::kRandom) {
      fill_random(tensor, named.name, seed, pool);
    } else if (kind == DummyWeights::kZero || must_be_numbers) {
      fill_zero(tensor, pool);
    }
    named.parameter->mark_loaded();
  }
  return finish_or_fail(model, pool);
}

}  // namespace atom
