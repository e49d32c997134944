#include "ops/quantize/quantize.h"

#include <algorithm>
#include <atomic>

#include "ops/quantize/quantize_kernels.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/fill.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

using Launch = void(const Stream&, const QuantizeArgs&, int64_t num_rows);

template <QuantizeKernel* kernel>
void on_pool(const Stream& stream, const QuantizeArgs& args, int64_t num_rows) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <QuantizeGpuKernel* kernel>
void on_queue(const Stream& stream, const QuantizeArgs& args, int64_t num_rows) {
  CHECK(num_rows <= INT32_MAX);
  if (num_rows > 0) kernel(args, num_rows, stream.queue().handle());
}

constexpr Variant<QuantizeArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"vector",
     CpuIsa::kScalar,
     fits_quantize_vector,
     on_queue<quantize_vector_cuda>,
     DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<quantize_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<quantize_reference>},
};

QuantizeArgs checked_args(const Tensor& x, const QuantizedRows& out) {
  TensorCheck check("quantize");
  check.tensor("x", x, {"T", "K"}, x.dtype());
  QuantizeArgs args = checked_codes(check, x.dtype(), out);
  args.x = x.raw_data();
  args.x_stride = x.stride(0);
  return args;
}

constexpr int64_t kNaNGrain = 1 << 18;  // elements

bool has_nan(const uint8_t* codes, int64_t count) {
  uint8_t any = 0;
  for (int64_t i = 0; i < count; ++i) any |= (codes[i] & 0x7f) == 0x7f;
  return any != 0;
}

#ifdef ATOM_CUDA
constexpr int64_t kVectorLength = 16;

bool has_nan_on_device(const Stream& stream, const Tensor& codes) {
  DeviceQueue& queue = stream.queue();
  const int64_t num_vectors = codes.num_elements() / kVectorLength;
  const auto* data = static_cast<const uint8_t*>(codes.raw_data());
  CHECK((reinterpret_cast<uintptr_t>(data) % kVectorLength == 0));
  const Tensor found = Tensor::empty({1}, DType::kInt32, stream.device());
  fill_zero(stream, found);
  if (num_vectors > 0) {
    find_nan_cuda(data, num_vectors, static_cast<uint32_t*>(found.raw_data()), queue.handle());
  }
  uint32_t found_on_host = 0;
  uint8_t rest[kVectorLength];
  const int64_t num_rest = codes.num_elements() - num_vectors * kVectorLength;
  queue.copy(&found_on_host, found.raw_data(), sizeof(found_on_host));
  queue.copy(rest, data + num_vectors * kVectorLength, num_rest);
  queue.synchronize();
  return found_on_host != 0 || has_nan(rest, num_rest);
}
#endif

}  // namespace

QuantizeArgs checked_codes(TensorCheck& check, DType dtype, const QuantizedRows& out) {
  CHECK((out.granularity == (out.is_static ? QuantType::kPerTensor : QuantType::kPerToken)));
  check.tensor("codes.values", out.values, {"T", "K"}, DType::kFloat8E4M3)
      .contiguous("codes.scales", out.scales, {out.is_static ? "1" : "T"}, DType::kFloat32);
  float* scales = static_cast<float*>(out.scales.raw_data());
  return {
      .x = nullptr,
      .values = static_cast<uint8_t*>(out.values.raw_data()),
      .scales = out.is_static ? nullptr : scales,
      .static_scale = out.is_static ? scales : nullptr,
      .x_stride = 0,
      .values_stride = out.values.stride(0),
      .size = out.values.size(1),
      .element = element_of(dtype),
  };
}

bool quantizes_with_its_producer(const Stream& stream,
                                 const Tensor& out,
                                 const QuantizedRows& codes) {
  if (stream.device().is_cpu()) return true;
  return !out.defined() && codes.values.dtype() == DType::kFloat8E4M3;
}

void quantize(const Stream& stream, const Tensor& x, const QuantizedRows& out) {
  const QuantizeArgs args = checked_args(x, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      "quantize", kVariants, stream, args, [&] { return moves(x, out.values, out.scales); });
  variant.launch(stream, args, x.size(0));
}

bool holds_nan(const Stream& stream, const Tensor& codes) {
  TensorCheck("holds_nan").contiguous("codes", codes, {"N", "K"}, DType::kFloat8E4M3);
#ifdef ATOM_CUDA
  if (!stream.device().is_cpu()) return has_nan_on_device(stream, codes);
#endif
  std::atomic<bool> found = false;
  const auto* data = static_cast<const uint8_t*>(codes.raw_data());
  stream.pool().parallel_for(codes.num_elements(), kNaNGrain, [&](int64_t begin, int64_t end) {
    if (has_nan(data + begin, end - begin)) found = true;
  });
  return found;
}

bool quantize_by(std::string_view variant_name,
                 const Stream& stream,
                 const Tensor& x,
                 const QuantizedRows& out) {
  const QuantizeArgs args = checked_args(x, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0));
  return true;
}

}  // namespace atom::ops
