#include "runner/layer_storage.h"

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
  for (const CachePlane& plane : spec.caches) {
    const Shape shape = join({size.num_blocks, size.block_size}, plane.per_token);
    storage.caches.push_back(make_tensor(stream, shape, plane.dtype));
  }
  for (const StatePlane& plane : spec.states) {
    const Shape shape = join({size.num_slots}, plane.per_slot);
    storage.states.push_back(make_tensor(stream, shape, plane.dtype));
  }
  return storage;
}

}  // namespace atom
