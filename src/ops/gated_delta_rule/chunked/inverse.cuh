// Inside the chunked gated delta rule: the inverse of a lower triangular matrix of float32 with
// ones on its diagonal, in shared memory and in place.
//
// Blocks of the diagonal are inverted first, those of 16 by substitution, then by twos:
//   [A 0; -m B]^-1 = [A^-1 0; B^-1 m A^-1 B^-1]
// Products have no long chains of sums that wait for each other, and loops are short code.
#pragma once

#include "ops/gated_delta_rule/chunked/chunks.cuh"

namespace atom::ops::delta_device {

constexpr int kMatrixStride = kChunk + 4;
constexpr int kInverseThreads = kChunk;

// Rows of float32; 16 bytes at a multiple of four columns.
using Matrix = float[kChunk][kMatrixStride];

__device__ inline float4 four_of(const Matrix& m, int row, int column) {
  return *reinterpret_cast<const float4*>(&m[row][column]);
}

// Of (I - m)^-1, where m is zero from its diagonal on: column t % 16 of block t / 16 of the
// diagonal, by thread t of 64. A block's threads are in one warp.
__device__ inline void invert_blocks(Matrix& m, int t) {
  const int first = t / 16 * 16, j = t % 16;
  float column[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sums[2] = {i == j ? 1.0f : 0.0f, 0};
#pragma unroll
    for (int l = 0; l < i; l += 4) {
      const float4 row = four_of(m, first + i, first + l);
      sums[0] = fmaf(row.x, column[l], sums[0]);
      if (l + 1 < i) sums[1] = fmaf(row.y, column[l + 1], sums[1]);
      if (l + 2 < i) sums[0] = fmaf(row.z, column[l + 2], sums[0]);
      if (l + 3 < i) sums[1] = fmaf(row.w, column[l + 3], sums[1]);
    }
    column[i] = sums[0] + sums[1];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16; ++i) m[first + i][first + j] = column[i];
}

// m[to + i, to_column + j] = sum over k in [begin, end) of m[left + i, left_column + k]
// m[right + k, right_column + j], for kRows rows from i and four columns from j on.
struct Place {
  int row, column;
};
template <int kRows>
__device__ inline void multiply_part(
    Matrix& m, Place to, Place left, Place right, int i, int j, int begin, int end) {
  float sums[kRows][4] = {};
#pragma unroll 1
  for (int k = begin; k < end; k += 4) {
    float4 a[kRows], b[4];
#pragma unroll
    for (int row = 0; row < kRows; ++row) a[row] = four_of(m, left.row + i + row, left.column + k);
#pragma unroll
    for (int l = 0; l < 4; ++l) b[l] = four_of(m, right.row + k + l, right.column + j);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float of_row[] = {a[row].x, a[row].y, a[row].z, a[row].w};
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        sums[row][0] = fmaf(of_row[l], b[l].x, sums[row][0]);
        sums[row][1] = fmaf(of_row[l], b[l].y, sums[row][1]);
        sums[row][2] = fmaf(of_row[l], b[l].z, sums[row][2]);
        sums[row][3] = fmaf(of_row[l], b[l].w, sums[row][3]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    *reinterpret_cast<float4*>(&m[to.row + i + row][to.column + j]) =
        make_float4(sums[row][0], sums[row][1], sums[row][2], sums[row][3]);
  }
}

// From blocks of 16 to blocks of 32, one by each of two warps. What lies above the diagonal is
// scratch.
__device__ inline void join_blocks_of_16(Matrix& m, int t) {
  const int first = t / 32 * 32, i = t % 32 / 4 * 2, j = t % 4 * 4;
  const Place upper = {first, first}, lower = {first + 16, first + 16};
  const Place between = {first + 16, first}, scratch = {first, first + 16};
  multiply_part<2>(m, scratch, between, upper, i, j, 0, 16);
  __syncwarp();
  multiply_part<2>(m, between, lower, scratch, i, j, 0, 16);
}

// And the whole, in two steps with a barrier of all 64 threads between them. The first one's warps
// have 16 columns each, of which the second ones are zero in the upper half of A^-1; the second
// one's have 16 rows each, of which the first ones are zero in the right half of B^-1.
constexpr Place kUpper = {0, 0}, kLower = {32, 32}, kBetween = {32, 0}, kScratch = {0, 32};
__device__ inline void join_halves_first(Matrix& m, int t) {
  const int warp = t / 32, i = t % 32 / 4 * 4, j = warp * 16 + t % 4 * 4;
  multiply_part<4>(m, kScratch, kBetween, kUpper, i, j, warp * 16, 32);
}
__device__ inline void join_halves_second(Matrix& m, int t) {
  const int half = 1 - t / 32, i = half * 16 + t % 4 * 4, j = t % 32 / 4 * 4;
  multiply_part<4>(m, kBetween, kLower, kScratch, i, j, 0, 16 + half * 16);
}

}  // namespace atom::ops::delta_device
