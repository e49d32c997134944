#include "runner/context_rows.h"

#include <algorithm>
#include <array>

#include "ops/embedding/embedding.h"

namespace atom {
namespace {

// [begin, end), of the rows that a step computes of a sequence.
struct Piece {
  int32_t begin = 0;
  int32_t end = 0;
};

// The two pieces of rank `rank` of `size`, in order.
std::array<Piece, 2> pieces_of(int64_t num_rows, int32_t rank, int32_t size) {
  const int64_t count = 2 * int64_t{size};
  const auto piece = [&](int64_t index) {
    return Piece{static_cast<int32_t>(num_rows * index / count),
                 static_cast<int32_t>(num_rows * (index + 1) / count)};
  };
  return {piece(rank), piece(count - 1 - rank)};
}

bool is_cut(const ScheduledSequence& scheduled, int32_t size, int32_t threshold) {
  return !scheduled.is_decode() && scheduled.num_new_tokens >= std::max(2 * size, threshold);
}

}  // namespace

ContextRows::ContextRows(const SchedulerOutput& step,
                         std::span<RunnerSequence* const> sequences,
                         int32_t block_size,
                         const ParallelContext& parallel,
                         HostMirror* arrays,
                         int32_t threshold)
    : step_(step), sequences_(sequences), parallel_(parallel), arrays_(arrays) {
  const int32_t size = parallel.context_parallel_size, rank = parallel.context_parallel_rank;
  const auto cut = [&](const ScheduledSequence& scheduled) {
    return is_cut(scheduled, size, threshold);
  };
  if (size == 1 || std::ranges::none_of(step.scheduled, cut)) return;
  std::vector<std::vector<int32_t>> slots(static_cast<size_t>(size));
  int32_t row = 0;
  places_.assign(static_cast<size_t>(step.num_tokens), -1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ScheduledSequence& scheduled = step.scheduled[i];
    const std::vector<int32_t>& blocks = sequences[i]->block_ids;
    for (int32_t r = 0; cut(scheduled) && r < size; ++r) {
      for (const Piece& piece : pieces_of(scheduled.num_new_tokens, r, size)) {
        for (int32_t at = piece.begin; at < piece.end; ++at) {
          const int32_t position = scheduled.num_computed_tokens + at;
          slots[r].push_back(blocks[position / block_size] * block_size + position % block_size);
        }
        if (r == rank) add_piece(i, piece.begin, piece.end, row);
      }
    }
    if (!cut(scheduled)) add_piece(i, 0, scheduled.num_new_tokens, row);
    row += scheduled.num_new_tokens;
  }
  CHECK(row == step.num_tokens);
  send(slots);
}

void ContextRows::send(const std::vector<std::vector<int32_t>>& slots) {
  const auto num_ranks = std::ssize(slots), num_places = std::ssize(places_);
  const auto longest = std::ssize(std::ranges::max(slots, {}, &std::vector<int32_t>::size));
  arrays_->rotate();
  int32_t* out = std::ranges::copy(places_, arrays_->host()).out;
  for (const std::vector<int32_t>& of_rank : slots) {
    out = std::ranges::copy(of_rank, out).out;
    out = std::fill_n(out, longest - std::ssize(of_rank), -1);
  }
  const int64_t end = out - arrays_->host();
  CHECK(end <= arrays_->size());
  arrays_->send(0, end);
  split_.emplace();
  split_->ranks = parallel_.context_parallel;
  split_->rank = parallel_.context_parallel_rank;
  split_->slots = arrays_->view(num_places, {num_ranks, longest});
}

void ContextRows::add_piece(size_t index, int32_t begin, int32_t end, int32_t first_row) {
  const ScheduledSequence& scheduled = step_.scheduled[index];
  const bool is_whole = end - begin == scheduled.num_new_tokens;
  ScheduledSequence& piece = part_.scheduled.emplace_back();
  piece.id = scheduled.id;
  piece.num_computed_tokens = scheduled.num_computed_tokens + begin;
  piece.num_new_tokens = end - begin;
  piece.num_sampled = is_whole ? scheduled.num_sampled : 0;
  // Tokens before a piece are others' work of the same step.
  piece.reset_block_table = !is_whole || scheduled.reset_block_table;
  owners_.push_back(sequences_[index]);
  for (int32_t at = begin; at < end; ++at) {
    const bool tells = !is_whole || parallel_.context_parallel_rank == 0;
    places_[first_row + at] = tells ? part_.num_tokens + at - begin : -1;
  }
  part_.num_tokens += end - begin;
}

Tensor ContextRows::whole(const Tensor& rows,
                          int64_t num_parts,
                          const ForwardContext& context) const {
  if (!is_split() || num_parts == 0) return rows;
  const int64_t width = rows.size(1), num_all = step_.num_tokens, num_own = part_.num_tokens;
  const Tensor result = context.workspace.tensor({num_parts * num_all, width}, rows.dtype());
  const Tensor places = arrays_->view(0, {num_all});
  for (int64_t part = 0; part < num_parts; ++part) {
    ops::embedding_of_part(context.stream,
                           places,
                           rows.narrow(0, part * num_own, num_own),
                           0,
                           result.narrow(0, part * num_all, num_all));
  }
  // One rank has each row and the others have zeros.
  split_->ranks->all_reduce(context.stream, result);
  return result;
}

int64_t ContextRows::num_elements(const SchedulerConfig& config, int32_t num_context_ranks) {
  if (num_context_ranks == 1) return 0;
  const int64_t num_tokens = config.max_num_batched_tokens;
  const int64_t of_rank = max_own_rows(num_tokens, config.max_num_seqs, num_context_ranks);
  return num_tokens + num_context_ranks * of_rank;
}

std::optional<HostMirror> ContextRows::make_arrays(const SchedulerConfig& config,
                                                   int32_t num_context_ranks,
                                                   const Stream& stream) {
  if (num_context_ranks == 1) return std::nullopt;
  return HostMirror(stream, num_elements(config, num_context_ranks), kMaxDeviceSteps);
}

SchedulerConfig limits_of_parts(SchedulerConfig config, int32_t num_context_ranks) {
  if (num_context_ranks > 1) config.max_num_seqs *= 2;
  return config;
}

int64_t max_own_rows(int64_t num_tokens, int64_t num_seqs, int32_t num_context_ranks) {
  return std::min(num_tokens, num_tokens / num_context_ranks + 2 * num_seqs);
}

}  // namespace atom
