#include "comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "tensor/dispatch.h"
#include "tensor/numeric.h"

namespace atom {
namespace {

// Sums of a block stay in registers or the first cache while the sources are added one by one.
constexpr int64_t kBlock = 1024;

template <typename T>
constexpr bool kIsInteger = std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

template <typename T>
using SumOf = std::conditional_t<kIsInteger<T>, T, float>;

template <typename T>
SumOf<T> widen(T value) {
  if constexpr (kIsInteger<T>) {
    return value;
  } else {
    return to_float(value);
  }
}

template <typename T>
T narrow(SumOf<T> value) {
  if constexpr (kIsInteger<T>) {
    return value;
  } else {
    return from_float<T>(value);
  }
}

template <typename S>
S combine(ReduceOp op, S a, S b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

template <typename T>
void reduce_block(ReduceOp op,
                  std::span<const void* const> sources,
                  std::span<void* const> targets,
                  int64_t begin,
                  int64_t count) {
  SumOf<T> sums[kBlock];
  const T* first = static_cast<const T*>(sources[0]) + begin;
  for (int64_t i = 0; i < count; ++i) sums[i] = widen(first[i]);
  for (const void* source : sources.subspan(1)) {
    const T* values = static_cast<const T*>(source) + begin;
    if (op == ReduceOp::kSum) {
      for (int64_t i = 0; i < count; ++i) sums[i] += widen(values[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) sums[i] = combine(op, sums[i], widen(values[i]));
    }
  }
  for (void* target : targets) {
    T* values = static_cast<T*>(target) + begin;
    for (int64_t i = 0; i < count; ++i) values[i] = narrow<T>(sums[i]);
  }
}

template <typename T>
void reduce_typed(ReduceOp op,
                  std::span<const void* const> sources,
                  std::span<void* const> targets,
                  int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<T>(op, sources, targets, begin, std::min(kBlock, count - begin));
  }
}

}  // namespace

void reduce_in_order(ReduceOp op,
                     DType dtype,
                     std::span<const void* const> sources,
                     std::span<void* const> targets,
                     int64_t count) {
  if (dtype == DType::kInt32) return reduce_typed<int32_t>(op, sources, targets, count);
  if (dtype == DType::kInt64) return reduce_typed<int64_t>(op, sources, targets, count);
  dispatch_float(dtype,
                 [&]<typename T>(TypeTag<T>) { reduce_typed<T>(op, sources, targets, count); });
}

}  // namespace atom
