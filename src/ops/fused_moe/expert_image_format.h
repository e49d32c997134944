// How experts in MXFP4 lie on a Hopper GPU where their sizes allow it: as images of what stages of
// kernels hold, so that a copy brings whole lines of memory that follow each other, and threads
// read stages without bank conflicts. (Of a row-major matrix of gpt-oss, whose rows have 1440
// bytes, most rows begin inside of a line.)
//
// A matrix [N, K] is N / 64 tiles of 64 rows, and a tile K / 64 images of 64 columns, in ascending
// order. Codes are [N / 64][K / 64][2048] bytes. An image has its rows in eights, 256 bytes each:
// of an eight first what it has of the image's first 32 columns, then of the other ones, 128 bytes
// each, which are 16 bytes of every row in the order of image_place(), their bits in the order of
// image_codes(). So a tile takes the same bytes that its rows took. Exponents stay as they are, [N,
// K / 32]: what a tile or an eight has of them follows each other anyway.
#pragma once

#include <cstdint>

namespace atom::ops {

constexpr int kImageRows = 64, kImageColumns = 64;
constexpr int kImageBlocks = kImageColumns / 32;  // of columns that share an exponent in a row
constexpr int kImageSize = kImageRows * kImageColumns / 2;  // bytes of codes
// An eight's part of an image.
constexpr int kEightRows = 8, kEightSize = kEightRows * kImageColumns / 2;
constexpr int kEightBlockSize = kEightSize / kImageBlocks;
constexpr int kImageVectorSize = 16;  // bytes of a row's block
// A tile's exponents have to fit shared memory besides stages.
constexpr int kMostImageColumns = 4032;

// Which of the 16 bytes of its eight and block are a row's. Of the matrix's row and block. What a
// warp loads at once is in different banks by this: a block of an eight, or of every other row of
// two eights (the first one even); and four blocks from a multiple of four on of two rows that are
// 1, 4 or 8 apart.
constexpr int image_place(int row, int block) {
  return 2 * ((row / 2 ^ block) % 4) + (row ^ row / 4 ^ row / 8) % 2;
}

// Where a row's block begins in its image's codes.
constexpr int image_offset(int row, int block) {
  return row % kImageRows / kEightRows * kEightSize + block % kImageBlocks * kEightBlockSize +
         image_place(row, block) * kImageVectorSize;
}

// Eight codes of a row, of even columns in the lower halves of bytes, as images have them: so that
// few instructions make E4M3 of them, whose bits are 7 and 4 to 2 of a byte (image_codes_even() and
// image_codes_odd()), and no more than of rows' order bfloat16. The even code of a byte has its
// exponent and mantissa at 6 to 4, and its sign at 1 of the next byte, of the last one in the
// first; the odd code has its sign at 7, its exponent at 0 and 3 and its mantissa at 2.
constexpr uint32_t image_codes(uint32_t row_codes) {
  const uint32_t signs = row_codes & 0x08080808;
  return (row_codes & 0x07070707) << 4 | signs << 6 | signs >> 26 | (row_codes & 0x80808080) |
         (row_codes & 0x30303030) >> 2 | (row_codes & 0x40404040) >> 6;
}

// The other way round.
constexpr uint32_t row_codes(uint32_t image_codes) {
  const uint32_t signs = image_codes & 0x02020202;
  return (image_codes & 0x70707070) >> 4 | signs >> 6 | signs << 26 | (image_codes & 0x80808080) |
         (image_codes & 0x0c0c0c0c) << 2 | (image_codes & 0x01010101) << 6;
}

// Codes of an image as E4M3, those of even columns and of odd ones.
constexpr uint32_t image_codes_even(uint32_t word) {
  return (word >> 2 | word << 30) & 0x9c9c9c9c;
}
constexpr uint32_t image_codes_odd(uint32_t word) {
  return (word & 0x8c8c8c8c) | (word << 4 & 0x10101010);
}

// Which of a matrix's images a row's block is in.
constexpr int64_t image_index(int64_t row, int64_t block, int64_t num_columns) {
  return row / kImageRows * (num_columns / kImageColumns) + block / kImageBlocks;
}

}  // namespace atom::ops
