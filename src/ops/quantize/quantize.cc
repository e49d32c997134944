#include "ops/quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "ops/quantize/quantize_kernels.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/fill.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

constexpr int64_t kGroupSize = 128;

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

#ifdef ATOM_CUDA
bool is_plain_float8(const QuantizeArgs& args) {
  return args.is_plain_float8();
}

bool fits_vector(const QuantizeArgs& args) {
  return is_plain_float8(args) && fits_quantize_vector(args);
}
#endif

constexpr Variant<QuantizeArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"vector", CpuIsa::kScalar, fits_vector, on_queue<quantize_vector_cuda>, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, is_plain_float8, on_queue<quantize_cuda>, DeviceType::kCuda},
    {"group_vector",
     CpuIsa::kScalar,
     fits_quantize_group_vector,
     on_queue<quantize_group_vector_cuda>,
     DeviceType::kCuda},
    {"groups", CpuIsa::kScalar, nullptr, on_queue<quantize_groups_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<quantize_reference>},
};

QuantizeArgs checked_args(const Tensor& x, const QuantizedRows& out, E8M0Rounding rounding) {
  TensorCheck check("quantize");
  // Codes of two values each have a size of their own.
  const bool has_four_bits = out.values.dtype() == DType::kUInt8;
  check.tensor("x", x, {"T", has_four_bits ? "values" : "K"}, x.dtype());
  QuantizeArgs args = checked_codes(check, x.dtype(), out);
  CHECK(args.size == x.size(1));
  args.x = x.raw_data();
  args.x_stride = x.stride(0);
  args.rounds_exponents = rounding == E8M0Rounding::kEven;
  return args;
}

QuantDType code_dtype(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3:
      return QuantDType::kFloat8E4M3;
    case DType::kInt8:
      return QuantDType::kInt8;
    default:
      CHECK(dtype == DType::kUInt8);
      return QuantDType::kFloat4E2M1;
  }
}

// Values that share a scale; `size` for a whole row.
int64_t group_size_of(const QuantizedRows& out, QuantDType dtype, int64_t size) {
  if (dtype == QuantDType::kFloat4E2M1) {
    CHECK(out.granularity == QuantType::kPer1x32);
    CHECK(size % 32 == 0);
    return 32;
  }
  if (out.granularity == QuantType::kPer1x128) {
    CHECK(dtype == QuantDType::kFloat8E4M3);
    return kGroupSize;
  }
  CHECK(out.granularity == (out.is_static ? QuantType::kPerTensor : QuantType::kPerToken));
  return size;
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
  CHECK(reinterpret_cast<uintptr_t>(data) % kVectorLength == 0u);
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
  const QuantDType codes = code_dtype(out.values.dtype());
  const bool has_four_bits = codes == QuantDType::kFloat4E2M1;
  check.tensor(
      "codes.values", out.values, {"T", has_four_bits ? "K / 2" : "K"}, out.values.dtype());
  QuantizeArgs args = {};
  args.values = static_cast<uint8_t*>(out.values.raw_data());
  args.values_stride = out.values.stride(0);
  args.size = out.values.size(1) * (has_four_bits ? 2 : 1);
  args.element = element_of(dtype);
  args.dtype = codes;
  args.group_size = group_size_of(out, codes, args.size);
  const std::string groups = std::to_string(args.num_groups());
  const DType scale_dtype = has_four_bits ? DType::kUInt8 : DType::kFloat32;
  if (has_four_bits || out.granularity == QuantType::kPer1x128) {
    check.contiguous("codes.scales", out.scales, {"T", groups.c_str()}, scale_dtype);
  } else {
    check.contiguous("codes.scales", out.scales, {out.is_static ? "1" : "T"}, scale_dtype);
  }
  auto* scales = static_cast<float*>(out.scales.raw_data());
  if (has_four_bits) {
    args.exponents = static_cast<uint8_t*>(out.scales.raw_data());
  } else if (out.is_static) {
    args.static_scale = scales;
  } else {
    args.scales = scales;
  }
  return args;
}

bool quantizes_with_its_producer(const Stream& stream,
                                 const Tensor& out,
                                 const QuantizedRows& codes) {
  if (stream.device().is_cpu()) return true;
  const bool has_groups = codes.granularity == QuantType::kPer1x128;
  const bool has_whole_groups = !has_groups || codes.values.size(1) % kGroupSize == 0;
  return !out.defined() && codes.values.dtype() == DType::kFloat8E4M3 && has_whole_groups;
}

void quantize(const Stream& stream,
              const Tensor& x,
              const QuantizedRows& out,
              E8M0Rounding rounding) {
  const QuantizeArgs args = checked_args(x, out, rounding);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      "quantize", kVariants, stream, args, [&] { return moves(x, out.values, out.scales); });
  variant.launch(stream, args, x.size(0));
}

QuantizedRows quantized_rows(const CodeFormat& format,
                             int64_t num_rows,
                             int64_t size,
                             Workspace& workspace) {
  CHECK(format.is_quantized());
  const bool has_four_bits = format.dtype == DType::kUInt8;
  const Tensor values = workspace.tensor({num_rows, has_four_bits ? size / 2 : size}, format.dtype);
  if (format.static_scale.defined()) return {values, format.static_scale, format.granularity, true};
  Shape shape = {num_rows};
  if (format.granularity == QuantType::kPer1x128) shape = {num_rows, (size + 127) / 128};
  if (format.granularity == QuantType::kPer1x32) shape = {num_rows, size / 32};
  const DType dtype = has_four_bits ? DType::kUInt8 : DType::kFloat32;
  return {values, workspace.tensor(shape, dtype), format.granularity, false};
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
                 const QuantizedRows& out,
                 E8M0Rounding rounding) {
  const QuantizeArgs args = checked_args(x, out, rounding);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0));
  return true;
}

}  // namespace atom::ops
