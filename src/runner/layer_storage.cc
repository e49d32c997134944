#include "runner/layer_storage.h"

#include <cstring>

#include "tensor/device_arena.h"

namespace atom {
namespace {

// [leading..., rest...]
Shape join(std::initializer_list<int64_t> leading, const Shape& rest) {
  std::vector<int64_t> sizes(leading);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return Shape(sizes);
}

Tensor make_tensor(const Stream& stream, const Shape& shape, DType dtype) {
  return stream.is_dry_run() ? Tensor::meta(shape, dtype) : resident_tensor(stream, shape, dtype);
}

}  // namespace

LayerStorage make_layer_storage(const Stream& stream,
                                const StorageSpec& spec,
                                const StorageSize& size) {
  LayerStorage storage;
  const std::vector<size_t> homes = spec.homes();
  for (size_t i = 0; i < homes.size(); ++i) {
    const CachePlane& plane = spec.caches[i];
    const Shape shape = join({size.num_blocks, size.block_size}, plane.per_token);
    const bool is_shared = homes[i] < i;
    storage.caches.push_back(is_shared ? storage.caches[homes[i]]
                                       : make_tensor(stream, shape, plane.dtype));
  }
  for (const StatePlane& plane : spec.states) {
    const Shape shape = join({size.num_slots}, plane.per_slot);
    storage.states.push_back(make_tensor(stream, shape, plane.dtype));
  }
  return storage;
}

void copy_states(const Stream& stream,
                 const LayerStorage& storage,
                 std::span<const StateCopy> copies) {
  for (const StateCopy& copy : copies) {
    for (const Tensor& states : storage.states) {
      const Tensor from = states.narrow(0, copy.from, 1);
      const Tensor to = states.narrow(0, copy.to, 1);
      if (stream.device().is_cpu()) {
        std::memcpy(to.raw_data(), from.raw_data(), to.num_bytes());
      } else {
        stream.queue().copy(to.raw_data(), from.raw_data(), to.num_bytes());
      }
    }
  }
}

}  // namespace atom
