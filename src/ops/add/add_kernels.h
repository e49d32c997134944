// Inside add: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

struct AddArgs {
  const void* x;
  void* out;
  Element element;
};

using AddKernel = void(const AddArgs& args, int64_t begin, int64_t end);  // elements

AddKernel add_reference;
AddKernel add_avx2;
AddKernel add_avx512;

// On a GPU's queue (DeviceQueue::handle()).
void add_cuda(const AddArgs& args, int64_t num_elements, void* queue);

}  // namespace atom::ops
