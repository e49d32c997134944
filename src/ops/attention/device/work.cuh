// Inside attention: finding a work item's sequence on the device.
#pragma once

#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops::attention_device {

constexpr uint32_t kAllLanes = 0xffffffffu;

// Walks the items of all sequences, which are numbered sequence by sequence. All lanes of a warp
// call it together. `count(sequence)` is the number of a sequence's items.
class SequenceCursor {
 public:
  // Requires items that do not fall from call to call. False when there is no such item.
  template <typename Count>
  __device__ bool find(int item, int num_sequences, const Count& count) {
    const int lane = threadIdx.x & 31;
    while (true) {
      const int in_window = __shfl_sync(kAllLanes, inclusive_, 31);
      if (item < items_before_ + in_window) {
        break;
      }
      items_before_ += in_window;
      window_ += 32;
      if (window_ >= num_sequences) {
        inclusive_ = 0;
        return false;
      }
      inclusive_ = window_ + lane < num_sequences ? count(window_ + lane) : 0;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int lower = __shfl_up_sync(kAllLanes, inclusive_, offset);
        inclusive_ += lane >= offset ? lower : 0;
      }
    }
    const int rest = item - items_before_;
    const int index = __popc(__ballot_sync(kAllLanes, inclusive_ <= rest));
    const int before = __shfl_sync(kAllLanes, inclusive_, index == 0 ? 0 : index - 1);
    sequence = window_ + index;
    item_of_sequence = index == 0 ? rest : rest - before;
    return true;
  }

  // Items of all sequences, once there was no such item.
  __device__ int num_items() const {
    return items_before_;
  }

  int sequence = 0;
  int item_of_sequence = 0;

 private:
  int window_ = -32;  // the 32 sequences from here on
  int items_before_ = 0;
  int inclusive_ = 0;  // items of the window's sequences up to this lane's
};

}  // namespace atom::ops::attention_device
