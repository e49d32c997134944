#include "ops/add/add.h"

#include "ops/add/add_kernels.h"
#include "ops/add/add_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

template <AddKernel* kernel>
void add_on_pool(const Stream& stream, const AddArgs& args, int64_t num_elements) {
  stream.pool().parallel_for(num_elements, kElementsPerTask, [&](int64_t begin, int64_t end) {
    kernel(args, begin, end);
  });
}

#ifdef ATOM_CUDA
void add_on_queue(const Stream& stream, const AddArgs& args, int64_t num_elements) {
  if (num_elements > 0) add_cuda(args, num_elements, stream.queue().handle());
}
#endif

using AddLaunch = void(const Stream&, const AddArgs&, int64_t num_elements);

constexpr Variant<AddArgs, AddLaunch> kAddVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, add_on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, add_on_pool<add_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, add_on_pool<add_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, add_on_pool<add_reference>},
};

AddArgs checked_add_args(const Tensor& x, const Tensor& out) {
  TensorCheck check("add");
  check.contiguous("x", x, {"T", "D"}, x.dtype()).contiguous("out", out, {"T", "D"}, x.dtype());
  return {x.raw_data(), out.raw_data(), element_of(x.dtype())};
}

}  // namespace

void add(const Stream& stream, const Tensor& x, const Tensor& out) {
  const AddArgs args = checked_add_args(x, out);
  if (stream.is_dry_run()) return;
  const auto& variant =
      pick_variant("add", kAddVariants, stream, args, [&] { return moves(x, out, out); });
  variant.launch(stream, args, x.num_elements());
}

bool add_by(std::string_view variant_name,
            const Stream& stream,
            const Tensor& x,
            const Tensor& out) {
  const AddArgs args = checked_add_args(x, out);
  const auto* variant = named_variant(kAddVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.num_elements());
  return true;
}

}  // namespace atom::ops
