#include "layers/moe/all_to_all_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "layers/moe/token_share.h"
#include "ops/quantize/quantize.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"
#include "tensor/numeric.h"

namespace atom {
namespace {

constexpr int64_t kGroup = 128;  // values that share a scale
constexpr int64_t kRowAlignment = 16;

const ops::CodeFormat kFloat8Rows = {QuantType::kPer1x128, DType::kFloat8E4M3};

int64_t bytes_of_row(const Tensor& part) {
  return part.num_bytes() / std::max<int64_t>(1, part.size(0));
}

int64_t bytes_of_rows(const std::vector<Tensor>& parts) {
  int64_t bytes = 0;
  for (const Tensor& part : parts) {
    int64_t row = dtype_size(part.dtype());
    for (int dim = 1; dim < part.rank(); ++dim) row *= part.size(dim);
    bytes += row;
  }
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

char* row_of(const Tensor& part, int64_t row) {
  return static_cast<char*>(part.raw_data()) + row * bytes_of_row(part);
}

void pack_row(const std::vector<Tensor>& parts, int64_t row, char* to) {
  for (const Tensor& part : parts) {
    std::memcpy(to, row_of(part, row), bytes_of_row(part));
    to += bytes_of_row(part);
  }
}

void unpack_row(const char* from, const std::vector<Tensor>& parts, int64_t row) {
  for (const Tensor& part : parts) {
    std::memcpy(row_of(part, row), from, bytes_of_row(part));
    from += bytes_of_row(part);
  }
}

// x [T, H] of its codes and scales.
void dequantize(const ops::QuantizedRows& rows, const Tensor& x) {
  const int64_t size = x.size(1), num_groups = rows.scales.size(1);
  const auto* codes = rows.values.data<Float8E4M3>();
  const auto* scales = rows.scales.data<float>();
  dispatch_float(x.dtype(), [&]<typename T>(TypeTag<T>) {
    T* out = x.data<T>();
    for (int64_t t = 0; t < x.size(0); ++t) {
      for (int64_t k = 0; k < size; ++k) {
        const float scale = scales[t * num_groups + k / kGroup];
        out[t * size + k] = from_float<T>(to_float(codes[t * size + k]) * scale);
      }
    }
  });
}

// out[token] = the sum of what came back for it, rank by rank.
void add_up(const std::vector<std::vector<int32_t>>& sent, const Tensor& back, const Tensor& out) {
  const int64_t size = out.size(1);
  std::vector<float> sums(out.num_elements(), 0.0f);
  dispatch_float(out.dtype(), [&]<typename T>(TypeTag<T>) {
    const T* from = back.data<T>();
    for (const std::vector<int32_t>& tokens : sent) {
      for (const int32_t token : tokens) {
        float* sum = sums.data() + token * size;
        for (int64_t k = 0; k < size; ++k) sum[k] += to_float(*from++);
      }
    }
    T* to = out.data<T>();
    for (size_t i = 0; i < sums.size(); ++i) to[i] = from_float<T>(sums[i]);
  });
}

}  // namespace

AllToAllExchange::AllToAllExchange(const ParallelContext& parallel,
                                   ExpertOwners owners,
                                   bool in_float8)
    : parallel_(parallel), owners_(std::move(owners)), in_float8_(in_float8) {
  CHECK(!owners_.rank_of.empty());
}

std::vector<std::vector<int32_t>> AllToAllExchange::tokens_for_ranks(
    const Tensor& ids, const ForwardContext& context) const {
  std::vector<std::vector<int32_t>> tokens(parallel_.expert_size());
  const TokenShare share = token_share(parallel_, parallel_.expert_rank(), context);
  const int64_t size = ids.size(1);
  for (int64_t i = 0; i < share.count; ++i) {
    const int32_t* chosen = ids.data<int32_t>() + (share.begin + i) * size;
    for (int64_t j = 0; j < size; ++j) {
      if (chosen[j] < 0) continue;
      const bool is_shared = chosen[j] >= std::ssize(owners_.rank_of);
      const int32_t rank = is_shared ? parallel_.expert_rank() : owners_.rank_of[chosen[j]];
      const auto token = static_cast<int32_t>(i);
      if (tokens[rank].empty() || tokens[rank].back() != token) tokens[rank].push_back(token);
    }
  }
  return tokens;
}

std::vector<int32_t> AllToAllExchange::exchange_counts(
    const std::vector<std::vector<int32_t>>& sent, const ForwardContext& context) const {
  const int32_t world = parallel_.expert_size();
  std::vector<int32_t> counts(static_cast<size_t>(world) * world, 0);
  int32_t* const own = counts.data() + parallel_.expert_rank() * world;
  for (int32_t to = 0; to < world; ++to) own[to] = static_cast<int32_t>(sent[to].size());
  const Workspace::Scope scope(context.workspace);
  const Tensor mine = context.workspace.tensor({world}, DType::kInt32);
  const Tensor all = context.workspace.tensor({world, world}, DType::kInt32);
  std::copy_n(own, world, mine.data<int32_t>());
  parallel_.experts->all_gather(context.stream, mine, all);
  // A group that has failed sends no counts: nothing is read by numbers that nobody sent.
  if (parallel_.experts->status().ok()) {
    std::copy_n(all.data<int32_t>(), counts.size(), counts.begin());
  }
  return counts;
}

void AllToAllExchange::send_rows(const std::vector<std::vector<int32_t>>& sent,
                                 const std::vector<Tensor>& parts,
                                 const std::vector<int32_t>& counts,
                                 const std::vector<Tensor>& received,
                                 const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const int64_t world = parallel_.expert_size(), rank = parallel_.expert_rank();
  const bool is_dry = context.stream.is_dry_run();
  const int64_t turn =
      is_dry ? largest_share(parallel_, context) : std::max(1, *std::ranges::max_element(counts));
  const Shape shape = {world, turn, bytes_of_rows(parts)};
  const Tensor outgoing = context.workspace.tensor(shape, DType::kInt8);
  const Tensor incoming = context.workspace.tensor(shape, DType::kInt8);
  if (is_dry) return;
  const auto place = [&](const Tensor& rows, int64_t other, int64_t i) {
    return static_cast<char*>(rows.raw_data()) + (other * turn + i) * shape[2];
  };
  for (int64_t to = 0; to < world; ++to) {
    for (size_t i = 0; i < sent[to].size(); ++i) {
      pack_row(parts, sent[to][i], place(outgoing, to, static_cast<int64_t>(i)));
    }
  }
  parallel_.experts->all_to_all(context.stream, outgoing, incoming);
  int64_t row = 0;
  for (int64_t from = 0; from < world; ++from) {
    for (int32_t i = 0; i < counts[from * world + rank]; ++i) {
      unpack_row(place(incoming, from, i), received, row++);
    }
  }
}

void AllToAllExchange::drop_others(const ExpertRows& rows) const {
  const int32_t rank = parallel_.expert_rank(), world = parallel_.expert_size();
  int32_t own_begin = 0;
  for (int32_t from = 0; from < rank; ++from) own_begin += rows.counts[from * world + rank];
  const int32_t own_end = own_begin + rows.counts[rank * world + rank];
  const auto num_routed = static_cast<int32_t>(owners_.rank_of.size());
  const int64_t size = rows.choice.ids.size(1);
  int32_t* id = rows.choice.ids.data<int32_t>();
  for (int64_t row = 0; row < rows.choice.ids.size(0); ++row) {
    const bool is_own = row >= own_begin && row < own_end;
    for (int64_t j = 0; j < size; ++j, ++id) {
      const bool is_shared = *id >= num_routed;
      if (*id >= 0 && (is_shared ? !is_own : owners_.rank_of[*id] != rank)) *id = -1;
    }
  }
}

ExpertRows AllToAllExchange::prepare(const Tensor& x,
                                     const MoeRouter::Choice& choice,
                                     const Tensor& /*out*/,
                                     const ForwardContext& context) const {
  const Stream& stream = context.stream;
  Workspace& workspace = context.workspace;
  const int64_t world = parallel_.expert_size(), rank = parallel_.expert_rank();
  CHECK(x.is_contiguous());
  ExpertRows rows;
  int64_t num_rows = world * largest_share(parallel_, context);
  if (!stream.is_dry_run()) {
    rows.sent = tokens_for_ranks(choice.ids, context);
    rows.counts = exchange_counts(rows.sent, context);
    num_rows = 0;
    for (int64_t from = 0; from < world; ++from) num_rows += rows.counts[from * world + rank];
  }
  const Shape ids = {num_rows, choice.ids.size(1)};
  rows.x = workspace.tensor({num_rows, x.size(1)}, x.dtype());
  rows.y = workspace.tensor({num_rows, x.size(1)}, x.dtype());
  rows.choice = {workspace.tensor(ids, DType::kInt32), workspace.tensor(ids, DType::kFloat32)};

  const Workspace::Scope scope(workspace);
  const TokenShare share = token_share(parallel_, parallel_.expert_rank(), context);
  const auto own = [&](const Tensor& all) { return all.narrow(0, share.begin, share.count); };
  std::vector<Tensor> parts = {own(choice.ids), own(choice.weights)};
  std::vector<Tensor> received = {rows.choice.ids, rows.choice.weights};
  ops::QuantizedRows codes;
  if (in_float8_) {
    const auto sent = ops::quantized_rows(kFloat8Rows, share.count, x.size(1), workspace);
    codes = ops::quantized_rows(kFloat8Rows, num_rows, x.size(1), workspace);
    if (share.count > 0) ops::quantize(stream, own(x), sent);
    parts.insert(parts.end(), {sent.values, sent.scales});
    received.insert(received.end(), {codes.values, codes.scales});
  } else {
    parts.push_back(own(x));
    received.push_back(rows.x);
  }
  send_rows(rows.sent, parts, rows.counts, received, context);
  if (stream.is_dry_run()) return rows;
  if (in_float8_) dequantize(codes, rows.x);
  drop_others(rows);
  return rows;
}

void AllToAllExchange::finalize(const ExpertRows& rows,
                                const Tensor& out,
                                const ForwardContext& context) const {
  Workspace& workspace = context.workspace;
  const Workspace::Scope scope(workspace);
  const int64_t world = parallel_.expert_size(), rank = parallel_.expert_rank();
  const int64_t largest = largest_share(parallel_, context);
  const Tensor part = workspace.tensor({largest, out.size(1)}, out.dtype());
  // The way back: what came from a rank goes there, in the same order.
  std::vector<std::vector<int32_t>> sent(world);
  std::vector<int32_t> counts(rows.counts.size());
  int64_t num_back = world * largest;
  if (!context.stream.is_dry_run()) {
    int32_t row = 0;
    num_back = 0;
    for (int64_t other = 0; other < world; ++other) {
      sent[other].resize(rows.counts[other * world + rank]);
      std::iota(sent[other].begin(), sent[other].end(), row);
      row += rows.counts[other * world + rank];
      num_back += rows.counts[rank * world + other];
      for (int64_t to = 0; to < world; ++to) {
        counts[other * world + to] = rows.counts[to * world + other];
      }
    }
  }
  const Tensor back = workspace.tensor({num_back, out.size(1)}, out.dtype());
  send_rows(sent, {rows.y}, counts, {back}, context);
  if (!context.stream.is_dry_run()) add_up(rows.sent, back, part);
  join_shares(parallel_, part, out, context);
}

}  // namespace atom
