#include "layers/linear/delta_net_linear.h"

namespace atom {
namespace {

// A run of rows in every group of a key head, and how many rows it has.
struct RowsInGroup {
  int64_t begin;
  int64_t count;
};

// This rank's groups of `group_size` rows: the first section of all of them, then the second, ...
RowSlice rows_of_groups(int64_t num_groups,
                        int64_t group_size,
                        const std::vector<RowsInGroup>& sections,
                        const ShardPart& part) {
  RowSlice slice{"", num_groups * group_size, part, {}};
  const int64_t local = num_groups / part.world;
  for (const RowsInGroup& section : sections) {
    for (int64_t group = part.rank * local; group < (part.rank + 1) * local; ++group) {
      slice.runs.push_back({group * group_size + section.begin, section.count});
    }
  }
  return slice;
}

// This rank's part of each of several sections of one tensor.
RowSlice rows_of_sections(const char* id,
                          const std::vector<int64_t>& sections,
                          const ShardPart& part) {
  RowSlice slice{id, 0, part, {}};
  for (const int64_t rows : sections) {
    const int64_t local = rows / part.world;
    slice.runs.push_back({slice.rows + part.rank * local, local});
    slice.rows += rows;
  }
  return slice;
}

LinearPartition qkvz_partition(const BuildContext& build,
                               const GatedDeltaNetSizes& sizes,
                               DeltaNetRows rows) {
  const ShardPart part = tensor_parallel_part(build);
  LinearPartition partition;
  partition.in_features = build.config.hidden_size;
  if (rows == DeltaNetRows::kSections) {
    partition.out_slices = {
        rows_of_sections("qkv", {sizes.key_dim(), sizes.key_dim(), sizes.value_dim()}, part),
        {"z", sizes.value_dim(), part, {}}};
    return partition;
  }
  const int64_t k_rows = sizes.head_k_dim;
  const int64_t v_rows = sizes.value_dim() / sizes.num_k_heads;
  partition.out_slices = {rows_of_groups(
      sizes.num_k_heads,
      2 * k_rows + 2 * v_rows,
      {{0, k_rows}, {k_rows, k_rows}, {2 * k_rows, v_rows}, {2 * k_rows + v_rows, v_rows}},
      part)};
  return partition;
}

LinearPartition ba_partition(const BuildContext& build,
                             const GatedDeltaNetSizes& sizes,
                             DeltaNetRows rows) {
  const ShardPart part = tensor_parallel_part(build);
  LinearPartition partition;
  partition.in_features = build.config.hidden_size;
  if (rows == DeltaNetRows::kSections) {
    partition.out_slices = {{"b", sizes.num_v_heads, part, {}}, {"a", sizes.num_v_heads, part, {}}};
    return partition;
  }
  const int64_t heads = sizes.num_v_heads / sizes.num_k_heads;
  partition.out_slices = {
      rows_of_groups(sizes.num_k_heads, 2 * heads, {{0, heads}, {heads, heads}}, part)};
  return partition;
}

}  // namespace

QkvzParallelLinear::QkvzParallelLinear(BuildContext& build,
                                       const GatedDeltaNetSizes& sizes,
                                       DeltaNetRows rows)
    : LinearBase(build, qkvz_partition(build, sizes, rows), /*has_bias=*/false),
      conv_dim_(sizes.conv_dim() / build.parallel.tensor_parallel_size) {}

QkvzParallelLinear::Output QkvzParallelLinear::forward(const Activation& x,
                                                       const ForwardContext& context) const {
  const Tensor qkvz = LinearBase::forward(x, context);
  return {qkvz.narrow(1, 0, conv_dim_), qkvz.narrow(1, conv_dim_, qkvz.size(1) - conv_dim_)};
}

BaParallelLinear::BaParallelLinear(BuildContext& build,
                                   const GatedDeltaNetSizes& sizes,
                                   DeltaNetRows rows)
    : LinearBase(build, ba_partition(build, sizes, rows), /*has_bias=*/false) {}

DeltaNetGates BaParallelLinear::forward(const Activation& x, const ForwardContext& context) const {
  const Tensor ba = LinearBase::forward(x, context);
  const int64_t num_heads = ba.size(1) / 2;
  DeltaNetGates gates;
  gates.b = ba.narrow(1, 0, num_heads);
  gates.a = ba.narrow(1, num_heads, num_heads);
  return gates;
}

DeltaNetGates BaParallelLinear::gates(const Activation& x, const ForwardContext& context) const {
  const ops::LinearWeight* weight = plain_weight();
  if (weight == nullptr || !x.rows.defined() || context.observer != nullptr) {
    return forward(x, context);
  }
  DeltaNetGates gates;
  gates.x = x.rows;
  gates.weight = weight;
  return gates;
}

}  // namespace atom
