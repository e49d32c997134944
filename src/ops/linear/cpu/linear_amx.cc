// Products by the tiles of AMX: a walk over tiles of rows and of a panel's columns. Tiles 0 to 3
// hold sums, 4 rows of x, 5 to 7 16 rows each of whatever comes. Every sum is a chain over
// ascending blocks, whatever tile its row lies in.
#include <immintrin.h>
#include <string.h>

#include "ops/linear/tile_kernels.h"
#include "ops/simd/amx.h"

namespace atom::ops::linear_kernels {
namespace {

struct Tiles : AmxTiles {
  static void begin(int64_t num_rows) {
    configure(num_rows < kTileRows ? static_cast<int>(num_rows) : kTileRows);
  }
  static void end() { release(); }
};

struct BFloat16Product : Tiles {
  template <int kSum, int kA, int kB>
  static inline __attribute__((always_inline)) void multiply() {
    multiply_bfloat16<kSum, kA, kB>();
  }
};

struct Int8Product : Tiles {
  template <int kSum, int kA, int kB>
  static inline __attribute__((always_inline)) void multiply() {
    multiply_int8<kSum, kA, kB>();
  }
};

constexpr int64_t kSumStride = kPanelColumns * sizeof(float);
constexpr int64_t kLineSize = kPanelColumns * 4;
constexpr int64_t kTileSize = kTileRows * kTileRowSize;

// Always inline, as in linear_avx512.h.
inline __attribute__((always_inline)) void prefetch_next(const TileProduct& product,
                                                         const char*& next) {
  for (int line = 0; line < product.prefetch_lines; ++line) {
    _mm_prefetch(next + line * 64, _MM_HINT_T1);
  }
  next += product.prefetch_lines * 64;
}

inline __attribute__((always_inline)) void prefetch_tile(const char* tile) {
  for (int row = 0; row < kTileRows; ++row) _mm_prefetch(tile + row * kTileRowSize, _MM_HINT_T0);
}

template <typename Product, int kTile>
inline __attribute__((always_inline)) void begin_sums(const TileProduct& product,
                                                      const float* sums) {
  if (product.adds) {
    Product::template load<kTile>(sums, kSumStride);
  } else {
    Product::template zero<kTile>();
  }
}

// Tiles of rows at `first` and `second`, which advance by so many bytes a block, by half of the
// columns.
struct RowTiles {
  const char *first, *second;
  int64_t second_step;
};

// With the last product by these tiles of rows the two that follow come into the first-level cache.
template <typename Product, bool kIsLast>
void multiply_square(
    const TileProduct& product, RowTiles x, const char* weight, float* sums, const char*& next) {
  float* second_sums = sums + kTileRows * kPanelColumns;
  begin_sums<Product, 0>(product, sums);
  begin_sums<Product, 1>(product, sums + 16);
  begin_sums<Product, 2>(product, second_sums);
  begin_sums<Product, 3>(product, second_sums + 16);
  for (int64_t block = 0; block < product.num_blocks; ++block) {
    Product::template load<6>(weight, kLineSize);
    Product::template load<4>(x.first, kTileRowSize);
    Product::template load<7>(weight + 64, kLineSize);
    Product::template load<5>(x.second, kTileRowSize);
    Product::template multiply<0, 4, 6>();
    Product::template multiply<1, 4, 7>();
    Product::template multiply<2, 5, 6>();
    Product::template multiply<3, 5, 7>();
    prefetch_next(product, next);
    if (kIsLast) prefetch_tile(x.first + 2 * product.num_blocks * kTileSize);
    if (kIsLast) prefetch_tile(x.first + 3 * product.num_blocks * kTileSize);
    x.first += kTileSize;
    x.second += x.second_step;
    weight += kWeightBlockSize;
  }
  Product::template store<0>(sums, kSumStride);
  Product::template store<1>(sums + 16, kSumStride);
  Product::template store<2>(second_sums, kSumStride);
  Product::template store<3>(second_sums + 16, kSumStride);
}

// A tile of rows by all columns.
template <typename Product>
void multiply_row(
    const TileProduct& product, const char* x, int64_t step, float* sums, const char*& next) {
  const char* weight = product.weight;
  begin_sums<Product, 0>(product, sums);
  begin_sums<Product, 1>(product, sums + 16);
  begin_sums<Product, 2>(product, sums + 32);
  begin_sums<Product, 3>(product, sums + 48);
  for (int64_t block = 0; block < product.num_blocks; ++block) {
    Product::template load<4>(x, kTileRowSize);
    Product::template load<5>(weight, kLineSize);
    Product::template multiply<0, 4, 5>();
    Product::template load<6>(weight + 64, kLineSize);
    Product::template multiply<1, 4, 6>();
    Product::template load<7>(weight + 128, kLineSize);
    Product::template multiply<2, 4, 7>();
    Product::template load<5>(weight + 192, kLineSize);
    Product::template multiply<3, 4, 5>();
    prefetch_next(product, next);
    x += step;
    weight += kWeightBlockSize;
  }
  Product::template store<0>(sums, kSumStride);
  Product::template store<1>(sums + 16, kSumStride);
  Product::template store<2>(sums + 32, kSumStride);
  Product::template store<3>(sums + 48, kSumStride);
}

template <typename Product>
void multiply_tiles(const TileProduct& product) {
  const char *x = product.x, *next = product.prefetch;
  float* sums = product.sums;
  int64_t rows = product.num_rows;
  for (; rows > kTileRows; rows -= 2 * kTileRows) {
    const int64_t second_rows = rows - kTileRows < kTileRows ? rows - kTileRows : kTileRows;
    const RowTiles tiles = {x, x + product.num_blocks * kTileSize, second_rows * kTileRowSize};
    multiply_square<Product, false>(product, tiles, product.weight, sums, next);
    multiply_square<Product, true>(product, tiles, product.weight + 128, sums + 32, next);
    x += 2 * product.num_blocks * kTileSize;
    sums += 2 * kTileRows * kPanelColumns;
  }
  if (rows > 0) multiply_row<Product>(product, x, rows * kTileRowSize, sums, next);
}

inline void pack_tile_rows(
    const char* x, int64_t row_stride, int64_t rows, int64_t size, char* tile) {
  for (int64_t r = 0; r < rows; ++r, x += row_stride, tile += kTileRowSize) {
    if (size == kTileRowSize) {
      memcpy(tile, x, kTileRowSize);
    } else {
      memset(tile, 0, kTileRowSize);
      memcpy(tile, x, size);
    }
  }
}

// Steps of 4 bytes a column are lines of a block as they are.
inline void expand_words(const char* panel, int64_t steps, char* blocks) {
  const int64_t size = steps * kLineSize;
  memcpy(blocks, panel, size);
  memset(blocks + size, 0, (kWeightBlockSize - size % kWeightBlockSize) % kWeightBlockSize);
}

// Two steps of 2 bytes a column are one line.
inline void expand_halves(const char* panel, int64_t steps, char* blocks) {
  const auto* from = reinterpret_cast<const uint16_t*>(panel);
  auto* to = reinterpret_cast<uint32_t*>(blocks);
  const int64_t lines = (steps + 1) / 2;
  for (int64_t line = 0; line < steps / 2; ++line) {
    const uint16_t *low = from + line * 2 * kPanelColumns, *high = low + kPanelColumns;
    uint32_t* words = to + line * kPanelColumns;
    for (int c = 0; c < kPanelColumns; ++c) words[c] = low[c] | uint32_t{high[c]} << 16;
  }
  if (steps % 2 != 0) {
    const uint16_t* low = from + (steps - 1) * kPanelColumns;
    for (int c = 0; c < kPanelColumns; ++c) to[(lines - 1) * kPanelColumns + c] = low[c];
  }
  const int64_t size = lines * kLineSize;
  memset(blocks + size, 0, (kWeightBlockSize - size % kWeightBlockSize) % kWeightBlockSize);
}

}  // namespace

const TileKernels kAmxBFloat16 = {.block_steps = kTileRows,
                                  .integer_sums = false,
                                  .begin = Tiles::begin,
                                  .end = Tiles::end,
                                  .pack_x = pack_tile_rows,
                                  .expand = expand_words,
                                  .expands = false,
                                  .multiply = multiply_tiles<BFloat16Product>};
const TileKernels kAmxInt8 = {.block_steps = 2 * kTileRows,
                              .integer_sums = true,
                              .begin = Tiles::begin,
                              .end = Tiles::end,
                              .pack_x = pack_tile_rows,
                              .expand = expand_halves,
                              .expands = true,
                              .multiply = multiply_tiles<Int8Product>};

}  // namespace atom::ops::linear_kernels
