// Inside attention of a fixed order: in which order a row's keys are added. Keys are cut into
// segments at fixed positions; a segment is taken in tiles that begin at multiples of their size,
// and has a softmax of its own; segments are joined in ascending order. What a row's bits are
// follows from its position and the window alone.
#pragma once

#include "ops/attention/device/softmax.cuh"

namespace atom::ops::attention_device {

constexpr int kFixedTileKeys = 64;

// Segments: 64 of 128 keys, then 64 of twice as many, and so on.
constexpr int kSegmentKeys = 2 * kFixedTileKeys;
constexpr int kAlikeSegments = 64;

// Segments of one length end where their number and that of the shorter ones is kAlikeSegments
// times 1, 3, 7, 15 ... of the shortest.
__host__ __device__ inline int first_key_of_segment(int segment) {
  const int doublings = segment / kAlikeSegments;
  return kSegmentKeys *
         (kAlikeSegments * ((1 << doublings) - 1) + (segment % kAlikeSegments << doublings));
}

__host__ __device__ inline int segment_of_key(int key) {
  const int shortest = key / kSegmentKeys;
  int doublings = 0;
  while (shortest >= kAlikeSegments * ((2 << doublings) - 1)) ++doublings;
  const int rest = shortest - kAlikeSegments * ((1 << doublings) - 1);
  return doublings * kAlikeSegments + (rest >> doublings);
}

// The largest score that a row has seen and the sum of its weights against it, of whole segments.
struct JoinedSoftmax {
  float maximum = -INFINITY;
  float sum = 0;

  // Factors for what the row's values were, and for those of the segment.
  struct Factors {
    float before, added;

    __device__ float join(float value, float of_segment) const {
      return __fmaf_rn(of_segment, added, __fmul_rn(value, before));
    }
  };

  // The segment has keys that the row sees.
  __device__ Factors add(float segment_maximum, float segment_sum) {
    const float top = fmaxf(maximum, segment_maximum);
    const Factors factors = {exp2_fast(__fsub_rn(maximum, top)),
                             exp2_fast(__fsub_rn(segment_maximum, top))};
    maximum = top;
    sum = factors.join(sum, segment_sum);
    return factors;
  }
};

}  // namespace atom::ops::attention_device
