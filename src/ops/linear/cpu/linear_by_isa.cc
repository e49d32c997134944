// Which kernels of an instruction set a call takes, by its dtypes.
#include "ops/linear/linear_variants.h"

namespace atom::ops {
namespace {

using linear_kernels::KernelTable;
using linear_kernels::QuantizedTables;
using linear_kernels::StoreTable;

// What one instruction set has.
struct Tables {
  const KernelTable& bfloat16;
  const KernelTable& float16;
  const KernelTable& float32;
  const QuantizedTables& float8;
  const QuantizedTables& int8;
  const QuantizedTables& float4;
  const QuantizedTables& int4;
  const StoreTable& stores;
};

const QuantizedTables& tables_for(const Tables& tables, QuantDType weight) {
  switch (weight) {
    case QuantDType::kFloat8E4M3:
      return tables.float8;
    case QuantDType::kInt8:
      return tables.int8;
    case QuantDType::kFloat4E2M1:
      return tables.float4;
    case QuantDType::kInt4:
      return tables.int4;
  }
  return tables.float8;
}

const KernelTable& table_for(const QuantizedTables& tables, DType x) {
  switch (x) {
    case DType::kBFloat16:
      return tables.bfloat16;
    case DType::kFloat16:
      return tables.float16;
    case DType::kFloat8E4M3:
      return tables.float8;
    case DType::kInt8:
      return tables.int8;
    case DType::kUInt8:
      return tables.float4;
    default:
      return tables.float32;
  }
}

const KernelTable& table_for(const Tables& tables, const LinearCall& call) {
  const DType x = call.x.dtype();
  if (call.weight.is_quantized()) {
    return table_for(tables_for(tables, call.weight.quant_dtype()), x);
  }
  if (x == DType::kBFloat16) return tables.bfloat16;
  return x == DType::kFloat16 ? tables.float16 : tables.float32;
}

constexpr Tables kAvx512 = {linear_kernels::kAvx512BFloat16,
                            linear_kernels::kAvx512Float16,
                            linear_kernels::kAvx512Float32,
                            linear_kernels::kAvx512Float8,
                            linear_kernels::kAvx512Int8,
                            linear_kernels::kAvx512Float4,
                            linear_kernels::kAvx512Int4,
                            linear_kernels::kAvx512Stores};
constexpr Tables kAvx2 = {linear_kernels::kAvx2BFloat16,
                          linear_kernels::kAvx2Float16,
                          linear_kernels::kAvx2Float32,
                          linear_kernels::kAvx2Float8,
                          linear_kernels::kAvx2Int8,
                          linear_kernels::kAvx2Float4,
                          linear_kernels::kAvx2Int4,
                          linear_kernels::kAvx2Stores};

}  // namespace

void linear_many_amx(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch) {
  const bool is_int8 = calls.front().x.dtype() == DType::kInt8;
  linear_tiles(is_int8 ? linear_kernels::kAmxInt8 : linear_kernels::kAmxBFloat16,
               linear_kernels::kAvx512Stores,
               stream,
               calls,
               scratch);
}

void linear_many_avx512(const Stream& stream,
                        std::span<const LinearCall> calls,
                        Workspace& scratch) {
  linear_panels(table_for(kAvx512, calls.front()), kAvx512.stores, stream, calls, scratch);
}

void linear_many_avx2(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch) {
  linear_panels(table_for(kAvx2, calls.front()), kAvx2.stores, stream, calls, scratch);
}

void linear_amx(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_many_amx(stream, {&call, 1}, scratch);
}

void linear_avx512(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_many_avx512(stream, {&call, 1}, scratch);
}

void linear_avx2(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_many_avx2(stream, {&call, 1}, scratch);
}

}  // namespace atom::ops
