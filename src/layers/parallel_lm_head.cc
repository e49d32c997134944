#include "layers/parallel_lm_head.h"

#include <cstring>

#include "layers/quant/pack_parameter.h"

namespace atom {

namespace {

// parts [world, rows, largest] of all ranks -> logits [rows, vocab_size].
void place_side_by_side(const Stream& stream, const Tensor& parts, const Tensor& logits) {
  if (stream.is_dry_run()) return;
  const int64_t world = parts.size(0), num_rows = parts.size(1), largest = parts.size(2);
  constexpr int64_t kSize = sizeof(float);
  for (int64_t rank = 0; rank < world; ++rank) {
    const VocabPart part = vocab_part(logits.size(1), rank, world);
    const char* from =
        static_cast<const char*>(parts.raw_data()) + rank * num_rows * largest * kSize;
    char* to = static_cast<char*>(logits.raw_data()) + part.first * kSize;
    const int64_t to_stride = logits.stride(0) * kSize;
    if (!stream.device().is_cpu()) {
      stream.queue().copy_rows(to, to_stride, from, largest * kSize, part.count * kSize, num_rows);
      continue;
    }
    stream.pool().parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::memcpy(to + row * to_stride, from + row * largest * kSize, part.count * kSize);
      }
    });
  }
}

}  // namespace

ParallelLMHead::ParallelLMHead(BuildContext& build, const VocabParallelEmbedding* tied)
    : tied_(tied), part_(vocab_part(build)), parallel_(build.parallel) {
  if (tied_ != nullptr) return;
  weight_.reset(new Parameter(make_vocab_weight(build, part_)));
  packed_ = ops::linear_weight_meta(part_.count,
                                    build.config.hidden_size,
                                    build.dtype,
                                    ops::preferred_weight_layout(build.device));
  register_parameter("weight", weight_.get());
}

Status ParallelLMHead::finish_load(const Stream& stream) {
  if (tied_ != nullptr) return {};
  packed_ = pack_parameter(stream, weight_.get());
  return {};
}

int64_t ParallelLMHead::resident_bytes() const {
  return tied_ != nullptr ? 0 : packed_.data.num_bytes();
}

void ParallelLMHead::forward(const Tensor& hidden,
                             const Tensor& logits,
                             const ForwardContext& context) const {
  forward_by(weight(), hidden, logits, context);
}

Tensor ParallelLMHead::forward_part(const Tensor& hidden, const ForwardContext& context) const {
  const Tensor logits = context.workspace.tensor({hidden.size(0), part_.count}, DType::kFloat32);
  ops::linear(context.stream, hidden, weight(), Tensor(), logits, context.workspace);
  return logits;
}

void ParallelLMHead::forward_by(const ops::LinearWeight& weight,
                                const Tensor& hidden,
                                const Tensor& logits,
                                const ForwardContext& context) const {
  const auto multiply = [&](const Tensor& products) {
    ops::linear(context.stream, hidden, weight, Tensor(), products, context.workspace);
  };
  if (part_.is_whole()) return multiply(logits);
  const Workspace::Scope scope(context.workspace);
  const int64_t num_rows = hidden.size(0);
  const int64_t world = parallel_.tensor_parallel_size;
  // Even parts of one row come to lie where they belong.
  const bool is_in_place = num_rows == 1 && world * part_.largest == logits.size(1);
  const Shape shape = {world, num_rows, part_.largest};
  const Tensor parts =
      is_in_place ? logits.view(shape) : context.workspace.tensor(shape, DType::kFloat32);
  const Tensor own = parts.narrow(0, parallel_.tensor_parallel_rank, 1);
  multiply(own.view({num_rows, part_.largest}).narrow(1, 0, part_.count));
  parallel_.all_gather(context.stream, own, parts);
  if (!is_in_place) place_side_by_side(context.stream, parts, logits);
}

}  // namespace atom
