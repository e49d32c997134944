// Inside latent attention for Hopper: what lies where in shared memory, who waits for whom.
#pragma once

#include "ops/mla_attention/sm90/sizes.cuh"

namespace atom::ops::mla_device {

// A pair of tiles, each loaded in two groups of panels: tile 0 of the left half of the latent, then
// the right half with the rotated part; tile 1 of the right half, then the left one with the
// rotated part. The warpgroup that adds up a half gives its group back. So the one that gets a
// tile's weights from the other gives back the group with the rotated part, in whose place they
// are.
enum Group { kLeft0 = 0, kRight0 = 1, kRight1 = 2, kLeft1 = 3, kNumGroups = 4 };

template <int kGroup>
__host__ __device__ constexpr bool has_panel(int panel) {
  const bool is_left = kGroup == kLeft0 || kGroup == kLeft1;
  if (panel == kRopePanel) return kGroup == kRight0 || kGroup == kLeft1;
  return (panel < kHalfPanels) == is_left;
}

struct Shared {
  static constexpr int kQueries = 0;
  static constexpr int kTiles = kQueries + kTileBytes;
  static constexpr int kBases = kTiles + 2 * kTileBytes;  // [2 tiles][kRows] float
  static constexpr int kSums = kBases + 2 * kRows * 4;    // [2][2 warpgroups][kRows] float
  static constexpr int kScales = kSums + 4 * kRows * 4;   // [kRows] float
  static constexpr int kSlots = kScales + kRows * 4;      // [kSlotBuffers][2 tiles][kKeys] int32
  static constexpr int kSlotBuffers = 3;
  static constexpr int kBarriers = kSlots + kSlotBuffers * 2 * kKeys * 4;
  static constexpr int kNumBarriers = 2 * kNumGroups + 2;
  static constexpr int kBytes = kBarriers + kNumBarriers * 8;
};
static_assert(Shared::kBytes <= 227 * 1024);

struct Buffers {
  char* memory;
  uint32_t address;

  __device__ uint32_t queries() const { return address + Shared::kQueries; }
  __device__ uint32_t tile(int i) const { return address + Shared::kTiles + i * kTileBytes; }
  __device__ uint32_t weights(int i) const { return tile(i) + kRopePanel * kPanelBytes; }
  __device__ float* bases(int i) const {
    return reinterpret_cast<float*>(memory + Shared::kBases) + i * kRows;
  }
  __device__ float* sums(int parity, int group) const {
    return reinterpret_cast<float*>(memory + Shared::kSums) + (parity * 2 + group) * kRows;
  }
  // What a row's queries of float16 are multiplied by to be what they were.
  __device__ float* query_scales() const {
    return reinterpret_cast<float*>(memory + Shared::kScales);
  }
  __device__ int32_t* slots(int buffer) const {
    return reinterpret_cast<int32_t*>(memory + Shared::kSlots) + buffer * 2 * kKeys;
  }
  __device__ uint32_t full(int group) const { return address + Shared::kBarriers + group * 8; }
  __device__ uint32_t empty(int group) const { return full(kNumGroups + group); }
  __device__ uint32_t queries_full() const { return full(2 * kNumGroups); }
  __device__ uint32_t queries_empty() const { return full(2 * kNumGroups + 1); }
};

// Barriers of the hardware; 0 is that of the block.
enum NamedBarrier {
  kScored0Barrier = 1,   // warpgroup 0 has the scores of tile 0
  kWeights0Barrier = 2,  // ... and has written its weights and bases
  kWeights1Barrier = 3,  // warpgroup 1 those of tile 1
  kSumsBarrier = 4,
  kProducerBarrier = 5,
};

__device__ inline void init_barriers(const Buffers& buffers) {
  for (int group = 0; group < kNumGroups; ++group) {
    device::init_barrier(buffers.full(group), kWarpgroup);
    device::init_barrier(buffers.empty(group), kWarpgroup / 32);
  }
  device::init_barrier(buffers.queries_full(), kWarpgroup);
  device::init_barrier(buffers.queries_empty(), 2 * kWarpgroup / 32);
  device::publish_barriers();
}

#define ATOM_MLA_D8(d, i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATOM_MLA_D32(d, i) \
  ATOM_MLA_D8(d, i), ATOM_MLA_D8(d, i + 8), ATOM_MLA_D8(d, i + 16), ATOM_MLA_D8(d, i + 24)

#define ATOM_MLA_PRODUCT(type)                                                            \
  asm volatile(                                                                           \
      "{\n.reg .b64 a, b;\nmov.b64 a, {%128, %130};\nmov.b64 b, {%129, %130};\n"          \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                        \
      " {"                                                                                \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "  \
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
      "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "  \
      "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "  \
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "  \
      "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "      \
      "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "    \
      "%124, %125, %126, %127"                                                            \
      "}, a, b, 1, 1, 1, 0, 1;\n}"                                                        \
      : ATOM_MLA_D32(d, 0), ATOM_MLA_D32(d, 32), ATOM_MLA_D32(d, 64), ATOM_MLA_D32(d, 96) \
      : "r"(a), "r"(b), "n"(kHighWord))

// d[64, 256] += a[64, 16] b[16, 256], a inner-contiguous and b outer-contiguous, both in panels.
template <typename T>
__device__ __forceinline__ void product_of_shared_weights(float (&d)[128], uint32_t a, uint32_t b) {
  constexpr uint32_t kHighWord = attention_device::matrix_high_word(kEightRowsBytes);
  if constexpr (std::is_same_v<T, __half>) {
    ATOM_MLA_PRODUCT("f16");
  } else {
    ATOM_MLA_PRODUCT("bf16");
  }
}

#undef ATOM_MLA_PRODUCT
#undef ATOM_MLA_D8
#undef ATOM_MLA_D32

}  // namespace atom::ops::mla_device
