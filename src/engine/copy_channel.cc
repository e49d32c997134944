#include "engine/copy_channel.h"

#include <cstring>

namespace atom {
namespace {

// A prompt with what belongs to it.
constexpr int64_t kMaxFrameBytes = int64_t{1} << 30;

}  // namespace

void CopyChannel::send(const CopyFrame& frame) {
  const auto size = static_cast<int64_t>(frame.bytes.size());
  CHECK(size <= kMaxFrameBytes);
  const Tensor header = Tensor::empty({2}, DType::kInt64);
  header.data<int64_t>()[0] = frame.copy;
  header.data<int64_t>()[1] = size;
  const Tensor body = Tensor::empty({size}, DType::kInt8);
  std::memcpy(body.raw_data(), frame.bytes.data(), frame.bytes.size());
  group_.send(stream_, header, other_);
  group_.send(stream_, body, other_);
}

std::optional<CopyFrame> CopyChannel::receive() {
  const Tensor header = Tensor::zeros({2}, DType::kInt64);
  group_.receive(stream_, header, other_);
  if (!group_.status().ok()) return std::nullopt;
  const int64_t copy = header.data<int64_t>()[0], size = header.data<int64_t>()[1];
  if (copy < 0 || copy >= kMaxCopies || size < 1 || size > kMaxFrameBytes) {
    group_.fail(internal_error("a node sent {} bytes of copy {}", size, copy));
    return std::nullopt;
  }
  const Tensor body = Tensor::empty({size}, DType::kInt8);
  group_.receive(stream_, body, other_);
  if (!group_.status().ok()) return std::nullopt;
  const auto* bytes = static_cast<const uint8_t*>(body.raw_data());
  return CopyFrame{static_cast<int>(copy), {bytes, bytes + size}};
}

}  // namespace atom
