// What processes say to each other before they are one group, and the proof that each knows the
// secret of the group.
//
// Whoever is connected to sends a Challenge of fresh random bytes. The answer is a JoinRequest with
// random bytes of its own, and then a JoinVerdict and, to a member, a Roster come back. Each but
// the challenge ends with HMAC-SHA256 under the secret over what it says and both random strings,
// so that nothing that was heard once is of use a second time. The secret itself is never sent.
//
// Everything here comes from strangers: messages are short, of a fixed schema (base/wire.h), and
// refused whole.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom {

using JoinNonce = std::array<uint8_t, 32>;
using JoinSession = std::array<uint8_t, 16>;  // one coming together of a group
using JoinMac = std::array<uint8_t, 32>;

enum class JoinMessageType : uint8_t { kChallenge, kRequest, kVerdict, kRoster };
constexpr uint16_t kJoinVersion = 1;
constexpr size_t kMaxJoinMessage = 64 << 10;     // bytes, all told
constexpr size_t kMaxUnprovenMessage = 1 << 10;  // of challenges, requests and verdicts

struct JoinChallenge {
  JoinNonce nonce{};
};

struct JoinRequest {
  // A process wants to be of the group, or connects two of the group that came together.
  enum class Kind : uint8_t { kMember, kWire };

  JoinNonce nonce{};
  Kind kind = Kind::kMember;
  uint32_t process = 0;  // who asks
  uint32_t num_processes = 0;
  uint16_t port = 0;      // of a member: where it can be connected to
  uint32_t wire = 0;      // which of the group's connections this is to be
  JoinSession session{};  // of a wire; zeros for a member
  std::string digest;     // what all members have to agree on
};

struct JoinVerdict {
  bool accepted = false;
  std::string reason;  // for which it was not
};

struct Roster {
  struct Member {
    std::string host;  // numeric
    uint16_t port = 0;
  };
  JoinSession session{};
  std::vector<Member> members;  // of every process
};

// Both sides' random bytes; the second is zeros in the proof of a request, which has it inside.
struct JoinNonces {
  JoinNonce challenger{};
  JoinNonce joiner{};
};

struct JoinEnvelope {
  JoinMessageType type = JoinMessageType::kChallenge;
  size_t num_bytes = 0;  // of the whole message
};

std::vector<uint8_t> encode(const JoinChallenge& challenge);
std::vector<uint8_t> encode(const JoinRequest& request,
                            const std::string& secret,
                            const JoinNonces& nonces);
std::vector<uint8_t> encode(const JoinVerdict& verdict,
                            const std::string& secret,
                            const JoinNonces& nonces);
std::vector<uint8_t> encode(const Roster& roster,
                            const std::string& secret,
                            const JoinNonces& nonces);

// What the beginning of a message says; none as long as there is too little of it.
Result<std::optional<JoinEnvelope>> read_join_envelope(std::span<const uint8_t> bytes);

// Whole messages. These do not look at the proof.
Result<JoinChallenge> decode_join_challenge(std::span<const uint8_t> message);
Result<JoinRequest> decode_join_request(std::span<const uint8_t> message);
Result<JoinVerdict> decode_join_verdict(std::span<const uint8_t> message);
Result<Roster> decode_roster(std::span<const uint8_t> message);

// Whether who wrote a whole message knows the secret. Takes as long for wrong proofs as for right
// ones.
bool is_proven(std::span<const uint8_t> message,
               const std::string& secret,
               const JoinNonces& nonces);

// Fills with random bytes nobody can guess.
void fill_randomly(std::span<uint8_t> bytes);

}  // namespace atom
