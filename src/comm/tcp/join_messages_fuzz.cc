// Any bytes are refused, or are a message that encodes to the same bytes but for its proof, which
// they cannot have.
#include <algorithm>
#include <cstdlib>

#include "comm/tcp/join_messages.h"

namespace {

constexpr char kSecret[] = "0123456789abcdef";

template <typename Message>
void compare(const atom::Result<Message>& message, std::span<const uint8_t> bytes) {
  if (!message.ok()) return;
  const std::vector<uint8_t> again = atom::encode(*message, kSecret, {});
  if (again.size() != bytes.size()) std::abort();
  const size_t said = bytes.size() - sizeof(atom::JoinMac);
  if (!std::equal(again.begin(), again.begin() + said, bytes.begin())) std::abort();
  if (atom::is_proven(bytes, "another secret", {})) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto envelope = atom::read_join_envelope(bytes);
  if (envelope.ok() && envelope->has_value() && (*envelope)->num_bytes > atom::kMaxJoinMessage) {
    std::abort();
  }
  compare(atom::decode_join_request(bytes), bytes);
  compare(atom::decode_join_verdict(bytes), bytes);
  compare(atom::decode_roster(bytes), bytes);
  const auto challenge = atom::decode_join_challenge(bytes);
  if (challenge.ok() && !std::ranges::equal(atom::encode(*challenge), bytes)) std::abort();
  return 0;
}
