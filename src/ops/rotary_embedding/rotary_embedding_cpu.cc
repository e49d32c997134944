#include "ops/rotary_embedding/rotary_embedding_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

template <typename T>
void rotate_head(T* x, const float* cosines, const float* sines, int64_t half, bool interleaved) {
  for (int64_t i = 0; i < half; ++i) {
    T& first = x[interleaved ? 2 * i : i];
    T& second = x[interleaved ? 2 * i + 1 : i + half];
    const float a = to_float(first), b = to_float(second);
    first = from_float<T>(a * cosines[i] - b * sines[i]);
    second = from_float<T>(b * cosines[i] + a * sines[i]);
  }
}

}  // namespace

void rotary_embedding_reference(const RotaryEmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.rotary_dim / 2;
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t token = begin; token < end; ++token) {
      const float* cosines = args.cos_sin + args.positions[token] * args.cos_sin_stride;
      for (const RotaryEmbeddingArgs::Heads& heads : args.heads) {
        T* x = static_cast<T*>(heads.data) + token * heads.token_stride;
        for (int64_t head = 0; head < heads.num_heads; ++head) {
          rotate_head(
              x + head * heads.head_stride, cosines, cosines + half, half, args.interleaved);
        }
      }
    }
  });
}

}  // namespace atom::ops
