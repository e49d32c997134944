#include "layers/moe/resident_slices.h"

#include <cstring>

#include "tensor/device_arena.h"

namespace atom {

std::vector<Tensor> resident_slices(const Stream& stream, const std::vector<Tensor>& parts) {
  const Tensor& first = parts.front();
  const auto count = static_cast<int64_t>(parts.size());
  const Tensor all = Tensor::empty({count, first.num_elements()}, first.dtype());
  for (int64_t i = 0; i < count; ++i) {
    CHECK(parts[i].num_bytes() == first.num_bytes());
    std::memcpy(static_cast<char*>(all.raw_data()) + i * first.num_bytes(),
                parts[i].raw_data(),
                first.num_bytes());
  }
  const Tensor resident = resident_copy(stream, all);
  std::vector<Tensor> slices;
  for (int64_t i = 0; i < count; ++i) {
    slices.push_back(resident.narrow(0, i, 1).view(first.shape()));
  }
  return slices;
}

}  // namespace atom
