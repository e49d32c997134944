#include "sampling/row_kernels.h"

#include "ops/variant.h"

namespace atom {
namespace {

struct AnyRow {};

constexpr ops::Variant<AnyRow, const RowKernels> kVariants[] = {
    {"avx512", CpuIsa::kAvx512, nullptr, &kRowKernelsAvx512},
    {"avx2", CpuIsa::kAvx2, nullptr, &kRowKernelsAvx2},
    {"generic", CpuIsa::kScalar, nullptr, &kRowKernelsGeneric},
};

}  // namespace

const RowKernels& row_kernels() {
  static const RowKernels& kernels =
      *ops::pick_variant("sampling", kVariants, DeviceType::kCpu, AnyRow{}).launch;
  return kernels;
}

}  // namespace atom
