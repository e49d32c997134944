// The ordered table of an operator's implementations. The first variant of the stream's device that
// supports a call runs it; the CPU's reference, which supports everything, stands last.
// ATOM_OP_VARIANT="linear=reference" forces one, for tests and measurements; "linear=+reference"
// prefers it, so that others run what it does not support.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_info.h"
#include "tensor/device.h"
#include "tensor/operator_trace.h"
#include "tensor/profiler_range.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// How a row of a result depends on the other rows of the call: not at all, or by the order in which
// its sums are added, which follows from how many rows there are or where they stand.
enum class RowOrder { kFixed, kMixed };
constexpr RowOrder kMixesRows = RowOrder::kMixed;

// A candidate is a variant that has not been checked and timed on hardware as much as those that
// serve: its row stands in the table like theirs, before those that it may replace, but it runs
// only what ATOM_OP_VARIANT asks for by its name. What has proved itself loses the mark.
enum class Standing { kServes, kCandidate };
constexpr Standing kCandidate = Standing::kCandidate;

template <typename Desc, typename Launch>
struct Variant {
  const char* name;
  CpuIsa isa;                     // the least instruction set it needs
  bool (*supports)(const Desc&);  // null: everything
  Launch* launch;
  DeviceType device = DeviceType::kCpu;
  RowOrder row_order = RowOrder::kFixed;
  Standing standing = Standing::kServes;
};

// The variant that ATOM_OP_VARIANT forces for `op`, or "" when it forces none.
std::string_view forced_variant(std::string_view op);
// Whether it prefers a variant of `op`, and this one.
bool has_preferred_variant(std::string_view op);
bool is_preferred_variant(std::string_view op, std::string_view name);
// The names that it has, of any operator.
std::vector<std::string> named_variants();
bool is_named_variant(std::string_view name);

[[noreturn]] void no_such_variant(std::string_view op, std::string_view wanted);

template <typename Desc, typename Launch>
bool runs(const Variant<Desc, Launch>& variant, DeviceType device, const Desc& desc) {
  return variant.device == device && variant.isa <= cpu_isa() &&
         (variant.standing == Standing::kServes || is_named_variant(variant.name)) &&
         (variant.supports == nullptr || variant.supports(desc));
}

// The variant called `name`, or null when it does not exist or cannot run this call here.
template <typename Desc, typename Launch, size_t N>
const Variant<Desc, Launch>* named_variant(const Variant<Desc, Launch> (&table)[N],
                                           std::string_view name,
                                           DeviceType device,
                                           const Desc& desc) {
  for (const Variant<Desc, Launch>& variant : table) {
    if (name == variant.name && runs(variant, device, desc)) return &variant;
  }
  return nullptr;
}

// `table` has static storage. A forced variant that cannot run this call is an error, not a
// fallback. With `fixed_rows` only variants of RowOrder::kFixed are taken.
template <typename Desc, typename Launch, size_t N>
const Variant<Desc, Launch>& pick_variant(std::string_view op,
                                          const Variant<Desc, Launch> (&table)[N],
                                          DeviceType device,
                                          const Desc& desc,
                                          bool fixed_rows = false) {
  const auto find = [&](const auto& accepts) -> const Variant<Desc, Launch>* {
    for (const Variant<Desc, Launch>& variant : table) {
      if (fixed_rows && variant.row_order == RowOrder::kMixed) continue;
      if (accepts(variant) && runs(variant, device, desc)) return &variant;
    }
    return nullptr;
  };
  const Variant<Desc, Launch>* found = nullptr;
  if (has_preferred_variant(op)) {
    found = find([&](const auto& variant) { return is_preferred_variant(op, variant.name); });
  }
  const std::string_view wanted = forced_variant(op);
  if (found == nullptr) {
    found = find([&](const auto& variant) {
      return wanted.empty() ? variant.standing == Standing::kServes : wanted == variant.name;
    });
  }
  if (found == nullptr) no_such_variant(op, wanted);
  return *found;
}

// What to launch; while it lives it is a range of the operator's name.
template <typename Launch>
struct PickedVariant {
  const char* name;
  Launch* launch;
  ProfilerRange range;
};

// The same for a stream, whose trace notes the call when it has one. `work()` says what the call
// has to do.
template <typename Desc, typename Launch, size_t N, typename Work>
PickedVariant<Launch> pick_variant(const char* op,
                                   const Variant<Desc, Launch> (&table)[N],
                                   const Stream& stream,
                                   const Desc& desc,
                                   const Work& work) {
  const Variant<Desc, Launch>& variant =
      pick_variant(op, table, stream.device().type, desc, stream.has_fixed_rows());
  if (stream.trace() != nullptr && stream.trace()->is_started()) {
    stream.trace()->begin(op, variant.name, work());
  }
  return {variant.name, variant.launch, ProfilerRange(op)};
}

// The work of an operator that moves tensors and computes little; undefined ones count nothing.
template <typename... Tensors>
OperatorWork moves(const Tensors&... tensors) {
  return {.bytes = (int64_t{0} + ... + (tensors.defined() ? tensors.num_bytes() : 0))};
}

}  // namespace atom::ops
