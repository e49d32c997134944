#include "layers/moe/fused_moe.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "layers/linear/linear_base.h"
#include "nn/forward_observer.h"
#include "nn/weight_mapping.h"
#include "ops/fused_moe/expert_images.h"
#include "ops/fused_moe/fused_moe.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

// The sizes from which slices follow.
struct ExpertSizes {
  int64_t num_experts;   // all ranks together
  int64_t first_expert;  // of this rank ...
  int64_t num_local;     // ... and how many it has; behind the last one follows the first
  int64_t num_shared;
  int64_t hidden;
  int64_t full;   // intermediate size of one expert
  int64_t local;  // this rank's part of it
  int64_t first;  // where that begins

  int64_t num_stacked() const { return num_local + num_shared; }
  // Where an expert is loaded to; no place: another rank has it.
  std::optional<int64_t> place_of(int64_t expert) const {
    const int64_t place = (expert + num_experts - first_expert) % num_experts;
    return place < num_local ? std::optional(place) : std::nullopt;
  }
};

bool spreads_experts(const BuildContext& build) {
  return build.parallel.expert_parallel && build.parallel.expert_size() > 1;
}

// Among the ranks that share experts.
ShardPart expert_part(const BuildContext& build) {
  return {build.parallel.expert_rank(), build.parallel.expert_size()};
}

// Experts, or slots of them: the ids that exchanges and operators see, without shared ones.
int64_t num_routed_ids(const BuildContext& build, const FusedMoEOptions& options) {
  return options.num_experts + build.parallel.num_redundant_experts;
}

ExpertMap expert_map(const BuildContext& build, const FusedMoEOptions& options) {
  const ShardPart part = spreads_experts(build) ? expert_part(build) : ShardPart();
  return determine_expert_map(part.world, part.rank, num_routed_ids(build, options));
}

Status check_slots(const BuildContext& build, const FusedMoEOptions& options) {
  const int32_t world = build.parallel.expert_size();
  const int64_t num_slots = num_routed_ids(build, options);
  if (num_slots % world == 0 && num_slots / world <= options.num_experts) return {};
  return unimplemented(
      "--enable-eplb: {} has {} experts and {} redundant ones, which {} ranks cannot share evenly, "
      "each of them at most once",
      build.module_name,
      options.num_experts,
      build.parallel.num_redundant_experts,
      world);
}

// Of an expert's intermediate dimension: neighbors that share a scale, which no cut may part.
int64_t scale_unit_of(BuildContext& build) {
  const ModuleScope down(build, "down_proj");
  const std::string name = source_module(build.packed_modules_mapping, build.module_name, "0.down");
  const QuantScheme scheme = build.config.quantization.scheme_of(name);
  if (!scheme.is_quantized()) return 1;
  if (scheme.weights == QuantType::kPer128x128) return 128;
  return ops::QuantFormat{scheme.weight_dtype, scheme.weights, 1}.group_size();
}

// What a rank has of an expert's intermediate dimension: as much as any other, or where that parts
// what shares a scale a run of whole units, the first ranks one more.
struct ExpertPart {
  int64_t first = 0;
  int64_t count = 0;  // 0: there are too few units
};

ExpertPart part_of_expert(BuildContext& build, const FusedMoEOptions& options) {
  const ShardPart part = spreads_experts(build) ? ShardPart() : expert_part(build);
  const int64_t size = options.intermediate_size, world = part.world, rank = part.rank;
  const int64_t unit = std::max<int64_t>(1, scale_unit_of(build));
  if (size % (world * unit) == 0 || unit == 1) return {rank * (size / world), size / world};
  const int64_t units = (size + unit - 1) / unit, base = units / world, more = units % world;
  const auto begin = [&](int64_t r) {
    return std::min(size, (r * base + std::min(r, more)) * unit);
  };
  return base == 0 ? ExpertPart() : ExpertPart{begin(rank), begin(rank + 1) - begin(rank)};
}

void require_expert_split(BuildContext& build, const FusedMoEOptions& options) {
  const int32_t world = build.parallel.expert_size();
  if (!spreads_experts(build)) {
    if (scale_unit_of(build) <= 1) {
      return require_even_split(build, options.intermediate_size, "inputs of an expert", world);
    }
    if (part_of_expert(build, options).count > 0) return;
    build.fail(
        unimplemented("--tensor-parallel-size {}: {} has {} inputs of an expert, less than one "
                      "group of {} that share a scale for each rank",
                      world,
                      build.module_name,
                      options.intermediate_size,
                      scale_unit_of(build)));
    build.parallel = {};
    return;
  }
  if (build.parallel.moves_experts) {
    const Status status = check_slots(build, options);
    if (status.ok()) return;
    build.fail(status);
    build.parallel = {};
    return;
  }
  if (options.num_experts >= world) return;
  build.fail(
      unimplemented("--enable-expert-parallel: {} has {} experts, less than one for each of "
                    "{} ranks",
                    build.module_name,
                    options.num_experts,
                    world));
  build.parallel = {};
}

std::unique_ptr<ExpertSlots> make_slots(BuildContext& build, const FusedMoEOptions& options) {
  if (!build.parallel.moves_experts) return nullptr;
  return std::make_unique<ExpertSlots>(build.parallel, options.num_experts);
}

ExpertSizes expert_sizes(BuildContext& build, const FusedMoEOptions& options) {
  const ExpertPart part = part_of_expert(build, options);
  const ExpertMap map = expert_map(build, options);
  // Slots begin as first_placement() has them.
  return {options.num_experts,
          map.first % options.num_experts,
          map.count,
          options.num_shared,
          build.config.hidden_size,
          options.intermediate_size,
          part.count,
          part.first};
}

// Rows [first_row, first_row + local) of slot `slot` from rows of a matrix [.., H].
BoxCopy row_copy(const ExpertSizes& sizes, int64_t source_row, int64_t slot, int64_t first_row) {
  return {{{source_row, 0}, {sizes.local, sizes.hidden}},
          {{slot, first_row, 0}, {1, sizes.local, sizes.hidden}}};
}

// The matrix of slot `slot` from columns of a matrix [H, ..].
BoxCopy column_copy(const ExpertSizes& sizes, int64_t source_column, int64_t slot) {
  return {{{0, source_column}, {sizes.hidden, sizes.local}},
          {{slot, 0, 0}, {1, sizes.hidden, sizes.local}}};
}

// Adds one half of the shared experts' gate_up, which begins at row `first_row` of a slot.
void append_shared_half(const ExpertSizes& sizes,
                        const std::string& half,
                        int64_t first_row,
                        std::vector<ParameterSlice>* slices) {
  if (sizes.num_shared == 0) return;
  ParameterSlice shared = {"shared." + half, {sizes.num_shared * sizes.full, sizes.hidden}, {}};
  for (int64_t i = 0; i < sizes.num_shared; ++i) {
    shared.boxes.push_back(
        row_copy(sizes, i * sizes.full + sizes.first, sizes.num_local + i, first_row));
  }
  slices->push_back(std::move(shared));
}

void append_shared_down(const ExpertSizes& sizes, std::vector<ParameterSlice>* slices) {
  if (sizes.num_shared == 0) return;
  ParameterSlice shared = {"shared.down", {sizes.hidden, sizes.num_shared * sizes.full}, {}};
  for (int64_t i = 0; i < sizes.num_shared; ++i) {
    shared.boxes.push_back(column_copy(sizes, i * sizes.full + sizes.first, sizes.num_local + i));
  }
  slices->push_back(std::move(shared));
}

// A half of gate_up, expert by expert: "gate" is rows [0, local) of a slot, "up" what follows.
void append_half(const ExpertSizes& sizes,
                 const std::string& half,
                 int64_t first_row,
                 std::vector<ParameterSlice>* slices) {
  for (int64_t e = 0; e < sizes.num_experts; ++e) {
    ParameterSlice slice = {std::to_string(e) + "." + half, {sizes.full, sizes.hidden}, {}};
    if (const auto place = sizes.place_of(e)) {
      slice.boxes = {row_copy(sizes, sizes.first, *place, first_row)};
    }
    slices->push_back(std::move(slice));
  }
  append_shared_half(sizes, half, first_row, slices);
}

std::vector<ParameterSlice> down_slices(const ExpertSizes& sizes) {
  std::vector<ParameterSlice> slices;
  for (int64_t e = 0; e < sizes.num_experts; ++e) {
    ParameterSlice slice = {std::to_string(e) + ".down", {sizes.hidden, sizes.full}, {}};
    if (const auto place = sizes.place_of(e)) {
      slice.boxes = {column_copy(sizes, sizes.first, *place)};
    }
    slices.push_back(std::move(slice));
  }
  append_shared_down(sizes, &slices);
  return slices;
}

// The boxes of this rank's experts in one tensor of all experts: up to the last one, then from the
// first on.
std::vector<BoxCopy> local_experts(const ExpertSizes& sizes, const Shape& shape) {
  std::vector<BoxCopy> boxes;
  int64_t expert = sizes.first_expert;
  for (int64_t place = 0; place < sizes.num_local; expert = 0) {
    const int64_t count = std::min(sizes.num_local - place, sizes.num_experts - expert);
    BoxCopy& box = boxes.emplace_back(BoxCopy{whole(shape), whole(shape)});
    box.source.begin[0] = expert;
    box.target.begin[0] = place;
    box.source.size[0] = box.target.size[0] = count;
    place += count;
  }
  return boxes;
}

// All experts in one tensor, cut along `dim` as gate and up are: two halves, or pairs.
ParameterSlice fused_gate_up(const ExpertSizes& sizes, Shape shape, int dim, bool is_interleaved) {
  ParameterSlice slice = {"", std::move(shape), {}};
  const int num_runs = is_interleaved ? 1 : 2;
  const int64_t size = is_interleaved ? 2 * sizes.local : sizes.local;
  for (int run = 0; run < num_runs; ++run) {
    for (BoxCopy& box : local_experts(sizes, slice.source_shape)) {
      box.source.begin[dim] = is_interleaved ? 2 * sizes.first : run * sizes.full + sizes.first;
      box.target.begin[dim] = run * size;
      box.source.size[dim] = box.target.size[dim] = size;
      slice.boxes.push_back(std::move(box));
    }
  }
  return slice;
}

// Likewise of down_proj.
ParameterSlice fused_down(const ExpertSizes& sizes, Shape shape, int dim) {
  ParameterSlice slice = {"", std::move(shape), {}};
  slice.boxes = local_experts(sizes, slice.source_shape);
  for (BoxCopy& box : slice.boxes) {
    box.source.begin[dim] = sizes.first;
    box.source.size[dim] = box.target.size[dim] = sizes.local;
  }
  return slice;
}

ExpertStackLayout gate_up_layout(BuildContext& build, const FusedMoEOptions& options) {
  const ExpertSizes sizes = expert_sizes(build, options);
  const int64_t experts = sizes.num_experts;
  const bool is_interleaved = options.activation.is_interleaved;
  ExpertStackLayout layout;
  layout.shape = {sizes.num_stacked(), 2 * sizes.local, sizes.hidden};
  layout.is_transposed = options.is_transposed;
  if (!is_interleaved) {
    append_half(sizes, "gate", 0, &layout.alternatives.emplace_back());
    append_half(sizes, "up", sizes.local, &layout.alternatives.back());
  }
  if (options.is_transposed) {
    layout.alternatives = {
        {fused_gate_up(sizes, {experts, sizes.hidden, 2 * sizes.full}, 2, is_interleaved)}};
  } else {
    layout.alternatives.push_back(
        {fused_gate_up(sizes, {experts, 2 * sizes.full, sizes.hidden}, 1, is_interleaved)});
    append_shared_half(sizes, "gate", 0, &layout.alternatives.back());
    append_shared_half(sizes, "up", sizes.local, &layout.alternatives.back());
  }
  if (options.has_bias) {
    layout.bias = {fused_gate_up(sizes, {experts, 2 * sizes.full}, 1, is_interleaved)};
  }
  return layout;
}

ExpertStackLayout down_layout(BuildContext& build, const FusedMoEOptions& options) {
  const ExpertSizes sizes = expert_sizes(build, options);
  const int64_t experts = sizes.num_experts;
  ExpertStackLayout layout;
  layout.shape = {sizes.num_stacked(), sizes.hidden, sizes.local};
  layout.is_transposed = options.is_transposed;
  if (options.is_transposed) {
    layout.alternatives = {{fused_down(sizes, {experts, sizes.full, sizes.hidden}, 1)}};
  } else {
    layout.alternatives = {down_slices(sizes)};
    layout.alternatives.push_back({fused_down(sizes, {experts, sizes.hidden, sizes.full}, 2)});
    append_shared_down(sizes, &layout.alternatives.back());
  }
  if (options.has_bias) {
    const Shape shape = {experts, sizes.hidden};
    layout.bias = {{"", shape, local_experts(sizes, shape)}};
  }
  return layout;
}

// Undefined where every rank has all experts.
Tensor places_meta(const BuildContext& build, const FusedMoEOptions& options) {
  if (!spreads_experts(build)) return {};
  return Tensor::meta({num_routed_ids(build, options) + options.num_shared}, DType::kInt32);
}

}  // namespace

struct FusedMoE::Layouts {
  // `build` is in the module's own scope: its name says how experts are quantized.
  Layouts(BuildContext& build, const FusedMoEOptions& options) {
    require_expert_split(build, options);
    gate_up = gate_up_layout(build, options);
    down = down_layout(build, options);
    const Shape& shape = down.shape;
    // Products with activations in FP8 read rows.
    gate_up.keeps_images = down.keeps_images =
        !build.float8_expert_activations &&
        ops::keeps_expert_images(build.device, build.dtype, options.activation, shape[1], shape[2]);
  }

  ExpertStackLayout gate_up, down;
};

FusedMoE::FusedMoE(BuildContext& build, const FusedMoEOptions& options)
    : FusedMoE(build, options, Layouts(build, options)) {}

FusedMoE::FusedMoE(BuildContext& build, const FusedMoEOptions& options, const Layouts& layouts)
    : activation_(options.activation),
      adds_down_bias_(spreads_experts(build) || build.parallel.expert_rank() == 0),
      slots_(make_slots(build, options)),
      places_(places_meta(build, options)),
      gate_up_proj_(ModuleScope(build, "gate_up_proj"), layouts.gate_up),
      down_proj_(ModuleScope(build, "down_proj"), layouts.down) {
  // Slots with biases would need those of the shared experts, which no checkpoint has.
  CHECK((!options.has_bias || options.num_shared == 0));
  if (places_.defined()) map_ = expert_map(build, options);
  if (slots_ != nullptr) build.moving_experts.push_back(this);
  const bool is_supported =
      !build.float8_expert_activations ||
      ops::fused_moe_has_float8_activations(
          build.device, build.dtype, layouts.down.shape[1], layouts.down.shape[2], activation_);
  if (!is_supported) {
    build.fail(unimplemented(
        "--moe-activations fp8: this device has no kernel for experts of hidden size {}, {} "
        "intermediate values and activations in {}",
        layouts.down.shape[1],
        layouts.down.shape[2],
        dtype_name(build.dtype)));
  }
  register_module("gate_up_proj", &gate_up_proj_);
  register_module("down_proj", &down_proj_);
}

Status FusedMoE::finish_load(const Stream& stream) {
  if (places_.defined()) {
    std::vector<int32_t> places = map_.places;
    for (int64_t slot = map_.count; std::ssize(places) < places_.size(0); ++slot) {
      places.push_back(static_cast<int32_t>(slot));
    }
    const Tensor host = Tensor::empty(places_.shape(), DType::kInt32);
    std::ranges::copy(places, host.data<int32_t>());
    places_ = resident_copy(stream, host);
  }
  if (slots_ != nullptr) slots_->allocate(stream);
  return Module::finish_load(stream);
}

int64_t FusedMoE::resident_bytes() const {
  return Module::resident_bytes() + (places_.defined() ? places_.num_bytes() : 0) +
         (slots_ == nullptr ? 0 : slots_->resident_bytes());
}

ExpertOwners expert_owners(const BuildContext& build, const FusedMoEOptions& options) {
  ExpertOwners owners;
  owners.num_shared = options.num_shared;
  if (!spreads_experts(build)) return owners;
  const int world = build.parallel.expert_size();
  for (int rank = 0; rank < world; ++rank) {
    const ExpertMap map = determine_expert_map(world, rank, num_routed_ids(build, options));
    owners.rank_of.insert(owners.rank_of.end(), map.count, rank);
  }
  return owners;
}

void FusedMoE::choose_slots(const MoeRouter::Choice& choice, const ForwardContext& context) const {
  if (slots_ != nullptr) slots_->choose(choice.ids, context);
}

std::vector<Tensor> FusedMoE::slot_tensors(int64_t slot) const {
  std::vector<Tensor> tensors;
  for (const ExpertStack* stack : {&gate_up_proj_, &down_proj_}) {
    const ops::LinearWeight& weight = stack->weights()[slot];
    tensors.push_back(weight.data);
    if (weight.scales.defined()) tensors.push_back(weight.scales);
    if (stack->bias().defined()) tensors.push_back(stack->bias().narrow(0, slot, 1));
  }
  return tensors;
}

std::vector<Tensor> FusedMoE::input_scales() const {
  std::vector<Tensor> scales;
  for (const ExpertStack* stack : {&gate_up_proj_, &down_proj_}) {
    if (stack->input().static_scale.defined()) scales.push_back(stack->input().static_scale);
  }
  return scales;
}

ActivationFormat FusedMoE::wanted() const {
  const ops::CodeFormat input = gate_up_proj_.input();
  // Of other codes GPUs have no kernels that read them, and by MXFP4 products take their own order.
  const bool is_float4 = input.is_quantized() &&
                         gate_up_proj_.weights().front().quant_dtype() == QuantDType::kFloat4E2M1;
  if (input.granularity != QuantType::kPer1x128 || is_float4) return {};
  return {
      .codes = input.granularity, .code_dtype = input.dtype, .static_scale = input.static_scale};
}

int64_t FusedMoE::most_row_tokens() const {
  const ops::LinearWeight& down = down_proj_.weights().front();
  return ops::fused_moe_row_tokens(down.out_features, down.in_features);
}

void FusedMoE::forward(const Activation& x,
                       const MoeRouter::Choice& choice,
                       const Tensor& y,
                       const ForwardContext& context) const {
  const ops::ExpertWeights experts = {.gate_up = gate_up_proj_.weights(),
                                      .down = down_proj_.weights(),
                                      .gate_up_bias = gate_up_proj_.bias(),
                                      .down_bias = adds_down_bias_ ? down_proj_.bias() : Tensor(),
                                      .places = places_,
                                      .gate_up_input = gate_up_proj_.input(),
                                      .down_input = down_proj_.input()};
  if (context.observer != nullptr) context.observer->on_linear(context.stream, x.rows, {});
  ops::fused_moe(context.stream,
                 x.rows,
                 choice.ids,
                 choice.weights,
                 experts,
                 activation_,
                 y,
                 context.workspace,
                 wanted().takes(x.codes) ? x.codes : ops::QuantizedRows());
}

void map_experts(const ExpertNames& names, WeightMapping* mapping) {
  const auto add = [&](const std::string& source, const char* target, const char* slice) {
    mapping->packed_modules_mapping.push_back({source, target, slice});
  };
  constexpr const char* kGateUp = "experts.gate_up_proj";
  constexpr const char* kDown = "experts.down_proj";
  // Before those of one expert, as whose "{e}" their slices would read: source_module().
  if (!names.shared.empty()) {
    add(names.shared + "." + names.gate, kGateUp, "shared.gate");
    add(names.shared + "." + names.up, kGateUp, "shared.up");
    add(names.shared + "." + names.down, kDown, "shared.down");
  }
  add("experts.{e}." + names.gate, kGateUp, "{e}.gate");
  add("experts.{e}." + names.up, kGateUp, "{e}.up");
  add("experts.{e}." + names.down, kDown, "{e}.down");
  for (const std::string stack : {kGateUp, kDown}) {
    add(stack + "$", (stack + ".weight").c_str(), "");
    add(stack + "_bias$", (stack + ".bias").c_str(), "");
  }
}

}  // namespace atom
