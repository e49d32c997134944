// Inside attention: the tiled kernel over a kind of arithmetic, which the file of each instruction
// set includes. The template arguments have internal linkage, and so has every instance.
//
// Keys of a tile are packed transposed, so that both products, scores = q . keys and
// out += weights . values, are one small matrix product with a column of the result per lane.
// An element of a result is a chain of additions in the order of the inner dimension, the same
// whether 1 row or kRows rows are computed at a time: that is what makes results independent of
// the batch. Keys that a row does not see have weight 0 and add nothing, exactly.
//
// `Math` provides
//   Simd, Operand      vectors of float; what is multiplied
//   kDepth             operands of the inner dimension that one 32-bit unit holds
//   kRows, kVectors    the largest block of results that registers hold
//   Packed, broadcast, load_packed, multiply_add, store_weights, unit operations of packing
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/attention/attention_kernels.h"

namespace atom::ops {

// Below any score; its differences with scores stay finite.
constexpr float kAttentionLowest = -1e30f;
constexpr float kAttentionLog2E = 1.44269504f;

template <typename Math>
struct AttentionTiles {
  using Operand = typename Math::Operand;
  static constexpr int kTile = kAttentionTileKeys;
  static constexpr int kTaskRows = kAttentionTaskRows;
  static constexpr int kMaxDim = kAttentionMaxHeadDim;
  static constexpr int kWidth = Math::Simd::kWidth;

  alignas(64) Operand q[kTaskRows * kMaxDim];        // [row][head_dim]
  alignas(64) Operand keys[kTile * kMaxDim];         // [head_dim / kDepth][key][kDepth]
  alignas(64) Operand values[kTile * kMaxDim];       // [key / kDepth][dim][kDepth]
  alignas(64) Operand weights[Math::kRows * kTile];  // [row][key]
  alignas(64) float scores[Math::kRows * kTile];     // [row][key]
  alignas(64) float out[kTaskRows * kMaxDim];        // [row][padded_dim]
  alignas(64) float sums[kTaskRows * kWidth];        // [row][lane]
  alignas(64) float largest[kTaskRows];              // base 2
  alignas(64) char zeros[kMaxDim * sizeof(float)];
  int64_t positions[kTaskRows];

  int64_t head_dim;
  int64_t padded_dim;  // a multiple of the vector width
  int64_t token_size;  // bytes of all heads of a token in a cache
  int64_t sliding_window;
  float scale;  // times log2(e): exponentials are powers of 2
};

// Where the tokens of a tile lie in the caches.
struct AttentionTokens {
  const char* keys[kAttentionTileKeys];
  const char* values[kAttentionTileKeys];
};

// c[r][0 .. kN vectors] (+)= a[r] . b over `depth` units. With `shrink` c is multiplied by
// shrink[r] first, without it c starts from zero.
template <typename Math, int kR, int kN>
void multiply_block(const typename Math::Operand* a,
                    int64_t a_stride,
                    const typename Math::Operand* b,
                    int64_t b_columns,
                    int64_t depth,
                    const float* shrink,
                    float* c,
                    int64_t c_stride) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float sum[kR][kN];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = shrink == nullptr
                      ? Simd::zero()
                      : Simd::mul(Simd::load(c + r * c_stride + n * kWidth), Simd::set(shrink[r]));
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    typename Math::Packed column[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) column[n] = Math::load_packed(b + n * kWidth * Math::kDepth);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const typename Math::Packed row = Math::broadcast(a + r * a_stride);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sum[r][n] = Math::multiply_add(row, column[n], sum[r][n]);
    }
    a += Math::kDepth;
    b += b_columns * Math::kDepth;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) Simd::store(c + r * c_stride + n * kWidth, sum[r][n]);
  }
}

// The same for any number of vectors.
template <typename Math, int kR>
void multiply(const typename Math::Operand* a,
              int64_t a_stride,
              const typename Math::Operand* b,
              int64_t b_columns,
              int64_t depth,
              int64_t vectors,
              const float* shrink,
              float* c,
              int64_t c_stride) {
  constexpr int kWidth = Math::Simd::kWidth;
  while (vectors > 0) {
    int64_t done = vectors < Math::kVectors ? vectors : Math::kVectors;
    switch (done) {
      case 1:
        multiply_block<Math, kR, 1>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
        break;
      case 2:
        multiply_block<Math, kR, 2>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
        break;
      default:
        if constexpr (Math::kVectors > 2) {
          if (done == 3) {
            multiply_block<Math, kR, 3>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
          } else {
            multiply_block<Math, kR, 4>(a, a_stride, b, b_columns, depth, shrink, c, c_stride);
          }
        }
    }
    vectors -= done;
    b += done * kWidth * Math::kDepth;
    c += done * kWidth;
  }
}

// Keys of the tile that the row at `position` sees, relative to the tile: [begin, end).
struct AttentionSpan {
  int64_t begin;
  int64_t end;
};

static inline __attribute__((always_inline)) AttentionSpan visible_span(int64_t position,
                                                                        int64_t sliding_window,
                                                                        int64_t tile_begin,
                                                                        int64_t limit) {
  const int64_t begin = sliding_window == 0 ? 0 : position - sliding_window + 1 - tile_begin;
  const int64_t end = position + 1 - tile_begin;
  return {begin < 0 ? 0 : begin, end > limit ? limit : end};
}

// Scores to weights for rows [row, row + kR) over `vectors` vectors of keys; updates the running
// largest score and sum, and returns what the rows' outputs shrink by.
template <typename Math, int kR>
void soften(
    AttentionTiles<Math>& tiles, int64_t row, int64_t tile_begin, int64_t vectors, float* shrink) {
  using Simd = typename Math::Simd;
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  const Float scale = Simd::set(tiles.scale);
  alignas(64) float largest[kWidth] = {};
  alignas(64) float change[kWidth] = {};
  for (int r = 0; r < kR; ++r) {
    float* scores = tiles.scores + r * kTile;
    const AttentionSpan span =
        visible_span(tiles.positions[row + r], tiles.sliding_window, tile_begin, vectors * kWidth);
    Float top = Simd::set(tiles.largest[row + r]);
    for (int64_t n = 0; n < vectors; ++n) {
      Float score = Simd::mul(Simd::load(scores + n * kWidth), scale);
      const int64_t begin = span.begin - n * kWidth, end = span.end - n * kWidth;
      if (begin > 0 || end < kWidth) score = Simd::keep(score, begin, end, Simd::set(-INFINITY));
      Simd::store(scores + n * kWidth, score);
      top = Simd::max(top, score);
    }
    largest[r] = Simd::largest(top);
    change[r] = tiles.largest[row + r] - largest[r];
    tiles.largest[row + r] = largest[r];
  }
  Simd::store(shrink, Simd::exp2(Simd::load(change)));
  for (int r = 0; r < kR; ++r) {
    const Float top = Simd::set(largest[r]);
    Float sum = Simd::zero();
    for (int64_t n = 0; n < vectors; ++n) {
      const int64_t at = r * kTile + n * kWidth;
      const Float weight = Simd::exp2(Simd::sub(Simd::load(tiles.scores + at), top));
      sum = Simd::add(sum, weight);
      Math::store_weights(tiles.weights + at, weight);
    }
    float* sums = tiles.sums + (row + r) * kWidth;
    Simd::store(sums, Simd::fma(Simd::load(sums), Simd::set(shrink[r]), sum));
  }
}

// Rows [row, row + kR) against the packed tile.
template <typename Math, int kR>
void attend_rows(AttentionTiles<Math>& tiles, int64_t row, int64_t tile_begin, int64_t vectors) {
  constexpr int kWidth = Math::Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  alignas(64) float shrink[kWidth];
  multiply<Math, kR>(tiles.q + row * tiles.head_dim,
                     tiles.head_dim,
                     tiles.keys,
                     kTile,
                     tiles.head_dim / Math::kDepth,
                     vectors,
                     nullptr,
                     tiles.scores,
                     kTile);
  soften<Math, kR>(tiles, row, tile_begin, vectors, shrink);
  multiply<Math, kR>(tiles.weights,
                     kTile,
                     tiles.values,
                     tiles.padded_dim,
                     vectors * kWidth / Math::kDepth,
                     tiles.padded_dim / kWidth,
                     shrink,
                     tiles.out + row * tiles.padded_dim,
                     tiles.padded_dim);
}

// Rows [begin, end) against the packed tile, in blocks that skip the keys none of their rows sees.
template <typename Math>
void attend_tile(AttentionTiles<Math>& tiles,
                 int64_t row_begin,
                 int64_t row_end,
                 int64_t tile_begin) {
  constexpr int kWidth = Math::Simd::kWidth;
  for (int64_t row = row_begin; row < row_end; row += Math::kRows) {
    const int64_t rows = row_end - row < Math::kRows ? row_end - row : Math::kRows;
    const int64_t first = tiles.positions[row], last = tiles.positions[row + rows - 1];
    const int64_t end =
        visible_span(last, tiles.sliding_window, tile_begin, kAttentionTileKeys).end;
    const int64_t begin =
        visible_span(first, tiles.sliding_window, tile_begin, kAttentionTileKeys).begin;
    if (end <= 0 || begin >= kAttentionTileKeys) continue;
    const int64_t vectors = (end + kWidth - 1) / kWidth;
    switch (rows) {
      case 1:
        attend_rows<Math, 1>(tiles, row, tile_begin, vectors);
        break;
      case 2:
        attend_rows<Math, 2>(tiles, row, tile_begin, vectors);
        break;
      case 3:
        attend_rows<Math, 3>(tiles, row, tile_begin, vectors);
        break;
      case 4:
        attend_rows<Math, 4>(tiles, row, tile_begin, vectors);
        break;
      case 5:
        attend_rows<Math, 5>(tiles, row, tile_begin, vectors);
        break;
      default:
        attend_rows<Math, 6>(tiles, row, tile_begin, vectors);
    }
  }
}

// Where the tile's tokens lie in the caches: null for keys outside [key_begin, key_end), whose
// memory is not touched.
template <typename Math>
void locate_tokens(const AttentionArgs& args,
                   const int32_t* table,
                   int64_t tile_begin,
                   AttentionSpan keys,
                   AttentionTokens& tokens,
                   const AttentionTiles<Math>& tiles) {
  int64_t block = -1, offset = 0;
  for (int64_t i = 0; i < kAttentionTileKeys; ++i) {
    const int64_t key = tile_begin + i;
    tokens.keys[i] = tokens.values[i] = nullptr;
    if (key < keys.begin || key >= keys.end) continue;
    if (block < 0 || ++offset == args.block_size) {
      block = key / args.block_size;
      offset = key % args.block_size;
    }
    const int64_t at = (table[block] * args.block_size + offset) * tiles.token_size;
    tokens.keys[i] = static_cast<const char*>(args.k_cache) + at;
    tokens.values[i] = static_cast<const char*>(args.v_cache) + at;
  }
}

// Fetches `size` bytes, from `offset` on, of each of a tile's tokens in the order of memory, a few
// cache lines at a time: a burst would hold up the loads behind it.
class TokenPrefetch {
 public:
  TokenPrefetch(const char* const* tokens, int64_t offset, int64_t size)
      : tokens_(tokens), offset_(offset), size_(size) {}

  __attribute__((always_inline)) void advance(int64_t num_bytes) {
    for (; num_bytes > 0; num_bytes -= 64, line_ += 64) {
      if (line_ >= end_) {
        if (token_ == kAttentionTileKeys || tokens_[token_] == nullptr) return;
        line_ = tokens_[token_++] + offset_;
        end_ = line_ + size_;
      }
      __builtin_prefetch(line_, 0, 2);
    }
  }

 private:
  const char* const* tokens_;
  int64_t offset_;
  int64_t size_;
  int64_t token_ = 0;
  const char* line_ = nullptr;
  const char* end_ = nullptr;
};

// One head's rows of a tile: those of absent tokens read as zero.
template <typename Math>
void rows_of_head(const char* const* tokens,
                  int64_t offset,
                  const AttentionTiles<Math>& tiles,
                  const char** rows) {
  for (int i = 0; i < kAttentionTileKeys; ++i) {
    rows[i] = tokens[i] == nullptr ? tiles.zeros : tokens[i] + offset;
  }
}

// Units [unit, unit + count) of as many keys as a vector has lanes, transposed.
template <typename Math, typename T>
static inline __attribute__((always_inline)) void pack_square(const char* const* rows,
                                                              int64_t unit,
                                                              int64_t count,
                                                              float* packed) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  typename Simd::Float square[kWidth];
  if (count == kWidth) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      square[i] = Math::load_units(reinterpret_cast<const T*>(rows[i]), unit);
    }
    Simd::transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) Simd::store(packed + i * kAttentionTileKeys, square[i]);
    return;
  }
  for (int i = 0; i < kWidth; ++i) {
    square[i] = Math::load_units(reinterpret_cast<const T*>(rows[i]), unit, count);
  }
  Simd::transpose(square);
  for (int i = 0; i < count; ++i) Simd::store(packed + i * kAttentionTileKeys, square[i]);
}

// The first `num_keys` keys of the tile, transposed.
template <typename Math, typename T>
void pack_keys(AttentionTiles<Math>& tiles,
               const char* const* tokens,
               int64_t offset,
               int64_t num_keys,
               TokenPrefetch& prefetch) {
  constexpr int kWidth = Math::Simd::kWidth;
  const char* rows[kAttentionTileKeys];
  rows_of_head(tokens, offset, tiles, rows);
  const int64_t units = tiles.head_dim / Math::kDepth;
  float* packed = reinterpret_cast<float*>(tiles.keys);
  for (int64_t group = 0; group < num_keys; group += kWidth) {
    for (int64_t unit = 0; unit < units; unit += kWidth) {
      const int64_t count = units - unit < kWidth ? units - unit : kWidth;
      prefetch.advance(kWidth * count * Math::kDepth * static_cast<int64_t>(sizeof(T)));
      pack_square<Math, T>(rows + group, unit, count, packed + unit * kAttentionTileKeys + group);
    }
  }
}

// The first `num_keys` values of the tile.
template <typename Math, typename T>
void pack_values(AttentionTiles<Math>& tiles,
                 const char* const* tokens,
                 int64_t offset,
                 int64_t num_keys,
                 TokenPrefetch& prefetch) {
  const char* rows[kAttentionTileKeys];
  rows_of_head(tokens, offset, tiles, rows);
  const int64_t row_units = tiles.padded_dim * Math::kDepth;
  for (int64_t i = 0; i < num_keys; i += Math::kDepth) {
    prefetch.advance(Math::kDepth * tiles.head_dim * static_cast<int64_t>(sizeof(T)));
    Math::template interleave<T>(
        rows + i, tiles.head_dim, tiles.values + i / Math::kDepth * row_units);
  }
}

// Queries into the tile, and the state of their softmaxes before the first key.
template <typename Math, typename T>
void start_rows(const AttentionArgs& args, const AttentionTask& task, AttentionTiles<Math>& tiles) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t start = args.query_start[task.sequence];
  const int64_t num_queries = args.query_start[task.sequence + 1] - start;
  const int64_t first_position = args.seq_lens[task.sequence] - num_queries;
  int64_t row = 0;
  for (int64_t kv = task.first_kv_head; kv < task.first_kv_head + task.num_kv_heads; ++kv) {
    for (int64_t query = task.first_query; query < task.first_query + task.num_queries; ++query) {
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head, ++row) {
        const T* q = static_cast<const T*>(args.q) + (start + query) * args.q_strides[0] +
                     head * args.q_strides[1];
        Math::copy_operands(q, args.head_dim, tiles.q + row * args.head_dim);
        const float sink =
            args.sinks == nullptr ? kAttentionLowest : args.sinks[head] * kAttentionLog2E;
        const bool has_sink = sink > kAttentionLowest;
        tiles.positions[row] = first_position + query;
        tiles.largest[row] = has_sink ? sink : kAttentionLowest;
        memset(tiles.sums + row * tiles.kWidth, 0, tiles.kWidth * sizeof(float));
        tiles.sums[row * tiles.kWidth] = has_sink ? 1.0f : 0.0f;
      }
    }
  }
  memset(tiles.out, 0, row * tiles.padded_dim * sizeof(float));
}

template <typename Math, typename T>
void finish_rows(const AttentionArgs& args,
                 const AttentionTask& task,
                 const AttentionTiles<Math>& tiles) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t token = args.query_start[task.sequence] + task.first_query;
  int64_t row = 0;
  for (int64_t kv = task.first_kv_head; kv < task.first_kv_head + task.num_kv_heads; ++kv) {
    for (int64_t query = 0; query < task.num_queries; ++query) {
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head, ++row) {
        const auto factor = Simd::set(1.0f / Simd::sum(Simd::load(tiles.sums + row * kWidth)));
        const float* from = tiles.out + row * tiles.padded_dim;
        T* to = static_cast<T*>(args.out) + (token + query) * args.out_strides[0] +
                head * args.out_strides[1];
        for (int64_t d = 0; d < args.head_dim; d += kWidth) {
          const auto value = Simd::mul(Simd::load(from + d), factor);
          if (args.head_dim - d >= kWidth) {
            Simd::store(to + d, value);
          } else {
            Simd::store(to + d, args.head_dim - d, value);
          }
        }
      }
    }
  }
}

template <typename Math, typename T>
void attend(const AttentionArgs& args, const AttentionTask& task) {
  constexpr int kTile = kAttentionTileKeys;
  constexpr int kWidth = Math::Simd::kWidth;
  const int64_t head_size = args.head_dim * static_cast<int64_t>(sizeof(T));
  AttentionTiles<Math> tiles;
  tiles.head_dim = args.head_dim;
  tiles.padded_dim = (args.head_dim + kWidth - 1) / kWidth * kWidth;
  tiles.token_size = args.num_kv_heads * head_size;
  tiles.sliding_window = args.sliding_window;
  tiles.scale = args.scale * kAttentionLog2E;
  memset(tiles.zeros, 0, sizeof(tiles.zeros));
  start_rows<Math, T>(args, task, tiles);

  const int32_t* table = args.block_tables + task.sequence * args.block_table_stride;
  const int64_t num_rows = task.num_queries * (args.num_heads / args.num_kv_heads);
  const int64_t key_end = tiles.positions[num_rows - 1] + 1;
  const AttentionSpan keys = {key_end - task.num_keys, key_end};
  const int64_t first_offset = task.first_kv_head * head_size;
  const int64_t run_size = task.num_kv_heads * head_size;
  AttentionTokens tokens[2];
  AttentionTokens* current = &tokens[0];
  AttentionTokens* next = &tokens[1];
  const int64_t first_tile = keys.begin / kTile * kTile;
  locate_tokens(args, table, first_tile, keys, *current, tiles);
  for (int64_t tile = first_tile; tile < keys.end; tile += kTile) {
    locate_tokens(args, table, tile + kTile, keys, *next, tiles);
    const int64_t left = keys.end - tile < kTile ? keys.end - tile : kTile;
    const int64_t num_keys = (left + kWidth - 1) / kWidth * kWidth;
    TokenPrefetch next_keys(next->keys, first_offset, run_size);
    TokenPrefetch next_values(next->values, first_offset, run_size);
    for (int64_t head = 0; head < task.num_kv_heads; ++head) {
      const int64_t offset = first_offset + head * head_size;
      pack_keys<Math, T>(tiles, current->keys, offset, num_keys, next_keys);
      pack_values<Math, T>(tiles, current->values, offset, num_keys, next_values);
      attend_tile(tiles, head * num_rows, (head + 1) * num_rows, tile);
    }
    AttentionTokens* done = current;
    current = next;
    next = done;
  }
  finish_rows<Math, T>(args, task, tiles);
}

// Products in float32 of operands expanded from any element type.
template <typename SimdType, int kMaxVectors>
struct Float32Math {
  using Simd = SimdType;
  using Operand = float;
  using Packed = typename Simd::Float;
  static constexpr int kDepth = 1;
  static constexpr int kRows = 6;
  static constexpr int kVectors = kMaxVectors;

  static Packed broadcast(const float* p) { return Simd::set(*p); }
  static Packed load_packed(const float* p) { return Simd::load(p); }
  static Packed multiply_add(Packed a, Packed b, Packed c) { return Simd::fma(a, b, c); }
  static void store_weights(float* p, Packed weights) { Simd::store(p, weights); }

  template <typename T>
  static Packed load_units(const T* row, int64_t begin) {
    return Simd::load(row + begin);
  }
  template <typename T>
  static Packed load_units(const T* row, int64_t begin, int64_t count) {
    return Simd::load(row + begin, count);
  }
  template <typename T>
  static void copy_operands(const T* from, int64_t size, float* to) {
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(from + i));
    if (i < size) Simd::store(to + i, size - i, Simd::load(from + i, size - i));
  }
  // One row, padded with zeros to whole vectors.
  template <typename T>
  static void interleave(const char* const* rows, int64_t size, float* to) {
    const T* row = reinterpret_cast<const T*>(rows[0]);
    int64_t i = 0;
    for (; i + Simd::kWidth <= size; i += Simd::kWidth) Simd::store(to + i, Simd::load(row + i));
    if (i < size) Simd::store(to + i, Simd::load(row + i, size - i));
  }
};

}  // namespace atom::ops
