#include "comm/tcp/join_messages.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "base/wire.h"

namespace atom {
namespace {

// magic, version, type, a zero, size of the body.
constexpr uint32_t kJoinMagic = 0x4A4D5441;
constexpr size_t kEnvelopeSize = 12;
constexpr size_t kMaxDigest = 200;
constexpr size_t kMaxReason = 500;
constexpr size_t kMaxHost = 64;
constexpr size_t kMaxMembers = 256;

template <size_t N>
void write_array(WireWriter* writer, const std::array<uint8_t, N>& bytes) {
  for (const uint8_t byte : bytes) writer->write(byte);
}

template <size_t N>
std::array<uint8_t, N> read_array(WireReader* reader) {
  std::array<uint8_t, N> bytes{};
  for (uint8_t& byte : bytes) byte = reader->read<uint8_t>();
  return bytes;
}

std::vector<uint8_t> in_envelope(JoinMessageType type, const std::vector<uint8_t>& body) {
  WireWriter writer(kEnvelopeSize + body.size() + sizeof(JoinMac));
  writer.write(kJoinMagic);
  writer.write(kJoinVersion);
  writer.write(type);
  writer.write(uint8_t{0});
  writer.write(static_cast<uint32_t>(body.size()));
  std::vector<uint8_t> message = writer.take();
  message.insert(message.end(), body.begin(), body.end());
  return message;
}

JoinMac prove(std::span<const uint8_t> message,
              const std::string& secret,
              const JoinNonces& nonces) {
  std::vector<uint8_t> text(nonces.challenger.begin(), nonces.challenger.end());
  text.insert(text.end(), nonces.joiner.begin(), nonces.joiner.end());
  text.insert(text.end(), message.begin(), message.end());
  JoinMac mac{};
  unsigned size = 0;
  CHECK(HMAC(EVP_sha256(),
             secret.data(),
             static_cast<int>(secret.size()),
             text.data(),
             text.size(),
             mac.data(),
             &size) != nullptr);
  CHECK(size == mac.size());
  return mac;
}

std::vector<uint8_t> with_proof(JoinMessageType type,
                                const std::vector<uint8_t>& body,
                                const std::string& secret,
                                const JoinNonces& nonces) {
  std::vector<uint8_t> message = in_envelope(type, body);
  const JoinMac mac = prove(message, secret, nonces);
  message.insert(message.end(), mac.begin(), mac.end());
  return message;
}

// The body of a whole message of that type; a reader that has failed for any other.
WireReader body_of(std::span<const uint8_t> message, JoinMessageType type) {
  const size_t num_proof = type == JoinMessageType::kChallenge ? 0 : sizeof(JoinMac);
  const Result<std::optional<JoinEnvelope>> envelope = read_join_envelope(message);
  if (!envelope.ok() || !envelope->has_value() || (*envelope)->type != type ||
      (*envelope)->num_bytes != message.size()) {
    WireReader failed({});
    failed.fail();
    return failed;
  }
  return WireReader(message.subspan(kEnvelopeSize, message.size() - kEnvelopeSize - num_proof));
}

Status not_understood(const char* what) {
  return invalid_argument("what came is no {} of this version", what);
}

}  // namespace

std::vector<uint8_t> encode(const JoinChallenge& challenge) {
  WireWriter body;
  write_array(&body, challenge.nonce);
  return in_envelope(JoinMessageType::kChallenge, body.take());
}

std::vector<uint8_t> encode(const JoinRequest& request,
                            const std::string& secret,
                            const JoinNonces& nonces) {
  WireWriter body;
  write_array(&body, request.nonce);
  body.write(request.kind);
  body.write(request.process);
  body.write(request.num_processes);
  body.write(request.port);
  body.write(request.wire);
  write_array(&body, request.session);
  body.write(request.digest.substr(0, kMaxDigest));
  return with_proof(JoinMessageType::kRequest, body.take(), secret, nonces);
}

std::vector<uint8_t> encode(const JoinVerdict& verdict,
                            const std::string& secret,
                            const JoinNonces& nonces) {
  WireWriter body;
  body.write(static_cast<uint8_t>(verdict.accepted));
  body.write(verdict.reason.substr(0, kMaxReason));
  return with_proof(JoinMessageType::kVerdict, body.take(), secret, nonces);
}

std::vector<uint8_t> encode(const Roster& roster,
                            const std::string& secret,
                            const JoinNonces& nonces) {
  WireWriter body;
  write_array(&body, roster.session);
  body.write_count(roster.members.size());
  for (const Roster::Member& member : roster.members) {
    body.write(member.host);
    body.write(member.port);
  }
  return with_proof(JoinMessageType::kRoster, body.take(), secret, nonces);
}

Result<std::optional<JoinEnvelope>> read_join_envelope(std::span<const uint8_t> bytes) {
  if (bytes.size() < kEnvelopeSize) return std::optional<JoinEnvelope>();
  WireReader reader(bytes.first(kEnvelopeSize));
  const auto magic = reader.read<uint32_t>();
  const auto version = reader.read<uint16_t>();
  JoinEnvelope envelope;
  envelope.type = reader.read_enum(JoinMessageType::kRoster);
  const auto zero = reader.read<uint8_t>();
  const auto body = reader.read<uint32_t>();
  if (magic != kJoinMagic) return invalid_argument("what came is not of atom");
  if (version != kJoinVersion) {
    return invalid_argument(
        "it speaks version {} of the protocol between nodes, and this atom {}: take the same atom "
        "on all nodes",
        version,
        kJoinVersion);
  }
  const bool is_roster = envelope.type == JoinMessageType::kRoster;
  const size_t most = is_roster ? kMaxJoinMessage : kMaxUnprovenMessage;
  const size_t num_proof =
      envelope.type == JoinMessageType::kChallenge ? size_t{0} : sizeof(JoinMac);
  envelope.num_bytes = kEnvelopeSize + size_t{body} + num_proof;
  if (!reader.ok() || zero != 0 || envelope.num_bytes > most) return not_understood("message");
  return std::optional<JoinEnvelope>(envelope);
}

Result<JoinChallenge> decode_join_challenge(std::span<const uint8_t> message) {
  WireReader reader = body_of(message, JoinMessageType::kChallenge);
  JoinChallenge challenge;
  challenge.nonce = read_array<sizeof(JoinNonce)>(&reader);
  if (!reader.finished()) return not_understood("challenge");
  return challenge;
}

Result<JoinRequest> decode_join_request(std::span<const uint8_t> message) {
  WireReader reader = body_of(message, JoinMessageType::kRequest);
  JoinRequest request;
  request.nonce = read_array<sizeof(JoinNonce)>(&reader);
  request.kind = reader.read_enum(JoinRequest::Kind::kWire);
  request.process = reader.read<uint32_t>();
  request.num_processes = reader.read<uint32_t>();
  request.port = reader.read<uint16_t>();
  request.wire = reader.read<uint32_t>();
  request.session = read_array<sizeof(JoinSession)>(&reader);
  request.digest = reader.read_string(kMaxDigest);
  if (!reader.finished()) return not_understood("request to join");
  return request;
}

Result<JoinVerdict> decode_join_verdict(std::span<const uint8_t> message) {
  WireReader reader = body_of(message, JoinMessageType::kVerdict);
  JoinVerdict verdict;
  verdict.accepted = reader.read_bool();
  verdict.reason = reader.read_string(kMaxReason);
  if (!reader.finished()) return not_understood("answer to a request to join");
  return verdict;
}

Result<Roster> decode_roster(std::span<const uint8_t> message) {
  WireReader reader = body_of(message, JoinMessageType::kRoster);
  Roster roster;
  roster.session = read_array<sizeof(JoinSession)>(&reader);
  const size_t count = reader.read_count(kMaxMembers, sizeof(uint32_t) + sizeof(uint16_t));
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    Roster::Member& member = roster.members.emplace_back();
    member.host = reader.read_string(kMaxHost);
    member.port = reader.read<uint16_t>();
  }
  if (!reader.finished()) return not_understood("roster");
  return roster;
}

bool is_proven(std::span<const uint8_t> message,
               const std::string& secret,
               const JoinNonces& nonces) {
  if (message.size() < kEnvelopeSize + sizeof(JoinMac)) return false;
  const std::span<const uint8_t> said = message.first(message.size() - sizeof(JoinMac));
  const JoinMac mac = prove(said, secret, nonces);
  return CRYPTO_memcmp(mac.data(), message.data() + said.size(), mac.size()) == 0;
}

void fill_randomly(std::span<uint8_t> bytes) {
  CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
}

}  // namespace atom
