// On the CPU: the choices of all tokens sorted by expert, so that each expert's matrices multiply
// all of its tokens, and those of all experts in one parallel region.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/linear/linear_variants.h"
#include "ops/quantize/quantize.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

// Choices at a time, which bounds what lies between the matrices: experts of the models there are
// have rows enough then to be limited by arithmetic.
constexpr int64_t kMaxChoices = 8192;
// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

int64_t rows_per_task(int64_t row_size) {
  return std::max<int64_t>(1, kElementsPerTask / row_size);
}

// Rows [begin, end) of the grouped order are an expert's.
struct Group {
  int64_t expert;
  int64_t begin, end;
  int64_t num_rows() const { return end - begin; }
};

// What a matrix multiplies: rows of floats, or of codes with their scales.
struct Factor {
  Tensor values;
  Tensor scales;           // undefined of floats; [1] for all rows or a row for each
  bool is_static = false;  // one scale, given before
  // Scales as quantize() makes them, where those above repeat each so many times; else undefined.
  Tensor made_scales = {};
  int64_t times = 1;

  Factor(const Tensor& floats) : values(floats) {}  // NOLINT: every tensor is one
  Factor(const QuantizedRows& codes)                // NOLINT: likewise
      : values(codes.values), scales(codes.scales), is_static(codes.is_static) {}

  bool has_scales_of_rows() const { return scales.defined() && !is_static; }
  Factor rows(int64_t begin, int64_t count) const {
    Factor part = *this;
    part.values = values.narrow(0, begin, count);
    if (has_scales_of_rows()) part.scales = scales.narrow(0, begin, count);
    if (times > 1) part.made_scales = made_scales.narrow(0, begin, count);
    return part;
  }
};

// Rows of floats into the beginning of `out`, whose codes have that format; floats as they are.
Factor quantized(const Stream& stream,
                 const Tensor& floats,
                 const CodeFormat& format,
                 const Factor& out) {
  if (!format.is_quantized()) return floats;
  Factor part = out.rows(0, floats.size(0));
  const Tensor& scales = part.times > 1 ? part.made_scales : part.scales;
  quantize(stream, floats, {part.values, scales, format.granularity, part.is_static});
  if (part.times > 1) repeat_scales(scales, part.times, part.scales);
  return part;
}

// The choices of some tokens in the order of their experts, and of their tokens within one.
class GroupedChoices {
 public:
  GroupedChoices(const FusedMoeCall& call, int64_t first_token, int64_t num_tokens)
      : top_k_(call.top_k()), rows_(num_tokens * top_k_, -1), tokens_(num_tokens * top_k_) {
    const int32_t* ids = call.ids.data<int32_t>() + first_token * top_k_;
    const auto num_choices = static_cast<int64_t>(rows_.size());
    std::vector<int64_t> counts(call.num_experts(), 0);
    for (int64_t i = 0; i < num_choices; ++i) {
      const int32_t expert = place_of(call.experts, ids[i]);
      if (expert >= 0) ++counts[expert];
    }
    std::vector<int64_t> next(call.num_experts());
    for (int64_t e = 0; e < call.num_experts(); ++e) {
      next[e] = num_rows_;
      if (counts[e] == 0) continue;
      groups_.push_back({e, num_rows_, num_rows_ + counts[e]});
      num_rows_ += counts[e];
    }
    for (int64_t i = 0; i < num_choices; ++i) {
      const int32_t expert = place_of(call.experts, ids[i]);
      if (expert < 0) continue;
      rows_[i] = next[expert]++;
      tokens_[rows_[i]] = i / top_k_;
    }
  }

  int64_t num_rows() const { return num_rows_; }
  const std::vector<Group>& groups() const { return groups_; }
  // Of these tokens, by row.
  int64_t token(int64_t row) const { return tokens_[row]; }
  // Whether a group's tokens follow each other.
  bool is_run(const Group& group) const {
    return token(group.end - 1) - token(group.begin) == group.num_rows() - 1;
  }
  // By a choice of these tokens: its row, or -1.
  int64_t row(int64_t choice) const { return rows_[choice]; }

 private:
  const int64_t top_k_;
  int64_t num_rows_ = 0;
  std::vector<int64_t> rows_;
  std::vector<int64_t> tokens_;
  std::vector<Group> groups_;
};

// What lies between the steps, a row per choice.
struct Buffers {
  Factor tokens;  // a row per token; used where they are quantized here
  Factor x;       // of tokens, where an expert's are not a run
  Tensor sums;    // of gate and up
  Tensor activated;
  Factor down_input;  // used where that is quantized
  Tensor results;     // of the experts

  Buffers(const FusedMoeCall& call, int64_t num_tokens, Workspace& scratch)
      : Buffers(call, num_tokens, num_tokens * call.top_k(), scratch) {}

 private:
  Buffers(const FusedMoeCall& call, int64_t num_tokens, int64_t num_rows, Workspace& scratch)
      : tokens(call.x_codes.defined()
                   ? Factor(Tensor())
                   : codes(call.experts.gate_up_input, num_tokens, gate_up(call), scratch)),
        x(call.experts.gate_up_input.is_quantized()
              ? codes(call.experts.gate_up_input, num_rows, gate_up(call), scratch)
              : scratch.tensor({num_rows, call.hidden_size()}, call.x.dtype())),
        sums(scratch.tensor({num_rows, 2 * call.intermediate_size()}, DType::kFloat32)),
        activated(scratch.tensor({num_rows, call.intermediate_size()}, call.x.dtype())),
        down_input(codes(call.experts.down_input, num_rows, call.experts.down[0], scratch)),
        results(scratch.tensor({num_rows, call.hidden_size()}, DType::kFloat32)) {}

  static const LinearWeight& gate_up(const FusedMoeCall& call) { return call.experts.gate_up[0]; }

  // Of what a weight multiplies.
  static Factor codes(const CodeFormat& format,
                      int64_t num_rows,
                      const LinearWeight& weight,
                      Workspace& scratch) {
    if (!format.is_quantized()) return Tensor();
    Factor factor = quantized_rows(format, num_rows, weight.in_features, scratch);
    factor.times = groups_of_a_scale(format, weight);
    if (factor.times == 1) return factor;
    factor.made_scales = factor.scales;
    factor.scales =
        scratch.tensor({num_rows, weight.in_features / weight.group_size}, DType::kFloat32);
    return factor;
  }
};

// One matrix of every group's expert, and what it multiplies.
class GroupProducts {
 public:
  GroupProducts(std::span<const LinearWeight> weights, const Tensor& biases, size_t num_groups)
      : weights_(weights), biases_(biases) {
    operands_.reserve(num_groups);
  }

  void add(const Group& group, const Factor& x, const Tensor& y) {
    operands_.push_back({x,
                         expert_bias(biases_, group.expert),
                         y.narrow(0, group.begin, group.num_rows()),
                         group.expert});
  }

  void run(const Stream& stream, Workspace& scratch) const {
    std::vector<LinearCall> calls;
    calls.reserve(operands_.size());
    for (const Operands& o : operands_) {
      calls.push_back({o.x.values, weights_[o.expert], o.bias, o.y, o.x.scales});
    }
    linear_many(stream, calls, scratch);
  }

 private:
  struct Operands {
    Factor x;
    Tensor bias, y;
    int64_t expert;
  };

  const std::span<const LinearWeight> weights_;
  const Tensor& biases_;
  std::vector<Operands> operands_;
};

// Rows of `from` in the order of the choices, but where an expert's tokens are a run.
void gather_rows_of(const Stream& stream,
                    const Tensor& from,
                    const GroupedChoices& choices,
                    const Tensor& to) {
  const int64_t element_size = dtype_size(to.dtype());
  const int64_t row_size = to.num_bytes() / to.size(0);
  const int64_t stride = from.stride(0) * element_size;
  const auto* source = static_cast<const char*>(from.raw_data());
  auto* target = static_cast<char*>(to.raw_data());
  const auto& groups = choices.groups();
  stream.pool().parallel_for(
      static_cast<int64_t>(groups.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          if (choices.is_run(groups[g])) continue;
          for (int64_t row = groups[g].begin; row < groups[g].end; ++row) {
            std::memcpy(target + row * row_size, source + choices.token(row) * stride, row_size);
          }
        }
      });
}

void gather_tokens(const Stream& stream,
                   const Factor& tokens,
                   const GroupedChoices& choices,
                   const Factor& out) {
  gather_rows_of(stream, tokens.values, choices, out.values);
  if (tokens.has_scales_of_rows()) gather_rows_of(stream, tokens.scales, choices, out.scales);
}

// y of a token from its choices' results, in their order.
void combine(const FusedMoeCall& call,
             const GroupedChoices& choices,
             const Tensor& results,
             int64_t first_token,
             int64_t token) {
  constexpr int64_t kPiece = 512;
  const int64_t top_k = call.top_k(), size = call.hidden_size();
  const float* weights = call.weights.data<float>() + token * top_k;
  dispatch_float(call.y.dtype(), [&]<typename Y>(TypeTag<Y>) {
    Y* y = call.y.data<Y>() + token * call.y.stride(0);
    for (int64_t first = 0; first < size; first += kPiece) {
      const int64_t count = std::min(kPiece, size - first);
      float total[kPiece] = {};
      for (int64_t j = 0; j < top_k; ++j) {
        const int64_t row = choices.row((token - first_token) * top_k + j);
        if (row < 0) continue;
        const float* result = results.data<float>() + row * size + first;
        for (int64_t i = 0; i < count; ++i) total[i] += weights[j] * result[i];
      }
      for (int64_t i = 0; i < count; ++i) y[first + i] = from_float<Y>(total[i]);
    }
  });
}

void run_tokens(ActivateKernel* activate,
                const Stream& stream,
                const FusedMoeCall& call,
                int64_t first_token,
                int64_t num_tokens,
                const Buffers& buffers,
                Workspace& scratch) {
  const GroupedChoices choices(call, first_token, num_tokens);
  const ExpertWeights& experts = call.experts;
  const auto& groups = choices.groups();
  if (!groups.empty()) {
    const Factor tokens = call.x_codes.defined()
                              ? Factor(call.x_codes).rows(first_token, num_tokens)
                              : quantized(stream,
                                          call.x.narrow(0, first_token, num_tokens),
                                          experts.gate_up_input,
                                          buffers.tokens);
    gather_tokens(stream, tokens, choices, buffers.x);
    GroupProducts gate_up(experts.gate_up, experts.gate_up_bias, groups.size());
    for (const Group& group : groups) {
      const bool is_run = choices.is_run(group);
      const int64_t begin = is_run ? choices.token(group.begin) : group.begin;
      gate_up.add(group, (is_run ? tokens : buffers.x).rows(begin, group.num_rows()), buffers.sums);
    }
    gate_up.run(stream, scratch);
    const ActivateArgs args{.sums = buffers.sums.data<float>(),
                            .out = buffers.activated.raw_data(),
                            .size = call.intermediate_size(),
                            .element = element_of(buffers.activated.dtype()),
                            .activation = call.activation};
    stream.pool().parallel_for(choices.num_rows(),
                               rows_per_task(args.size),
                               [&](int64_t begin, int64_t end) { activate(args, begin, end); });
    const Factor activated = quantized(stream,
                                       buffers.activated.narrow(0, 0, choices.num_rows()),
                                       experts.down_input,
                                       buffers.down_input);
    GroupProducts down(experts.down, experts.down_bias, groups.size());
    for (const Group& group : groups) {
      down.add(group, activated.rows(group.begin, group.num_rows()), buffers.results);
    }
    down.run(stream, scratch);
  }
  stream.pool().parallel_for(num_tokens,
                             rows_per_task(call.hidden_size() * call.top_k()),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t t = begin; t < end; ++t) {
                                 combine(
                                     call, choices, buffers.results, first_token, first_token + t);
                               }
                             });
}

// What the products take of `scratch` follows from the number of their rows alone.
void measure(const Stream& stream,
             const FusedMoeCall& call,
             int64_t num_rows,
             const Buffers& buffers,
             Workspace& scratch) {
  const Group all{0, 0, num_rows};
  GroupProducts gate_up(call.experts.gate_up, call.experts.gate_up_bias, 1);
  gate_up.add(all, buffers.x, buffers.sums);
  gate_up.run(stream, scratch);
  GroupProducts down(call.experts.down, call.experts.down_bias, 1);
  const bool is_quantized = call.experts.down_input.is_quantized();
  down.add(all, is_quantized ? buffers.down_input : Factor(buffers.activated), buffers.results);
  down.run(stream, scratch);
}

}  // namespace

void fused_moe_grouped(ActivateKernel* activate,
                       const Stream& stream,
                       const FusedMoeCall& call,
                       Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const int64_t num_tokens = call.num_tokens();
  const int64_t most_tokens =
      std::min(num_tokens, std::max<int64_t>(1, kMaxChoices / call.top_k()));
  const int64_t most_rows = most_tokens * call.top_k();
  const Buffers buffers(call, most_tokens, scratch);
  if (stream.is_dry_run()) return measure(stream, call, most_rows, buffers, scratch);
  for (int64_t first = 0; first < num_tokens; first += most_tokens) {
    const int64_t count = std::min(most_tokens, num_tokens - first);
    run_tokens(activate, stream, call, first, count, buffers, scratch);
  }
}

}  // namespace atom::ops
