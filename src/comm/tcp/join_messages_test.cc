#include "comm/tcp/join_messages.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atom {
namespace {

const std::string kKey = "the secret of a test";

JoinRequest sample_request() {
  JoinRequest request;
  fill_randomly(request.nonce);
  request.process = 3;
  request.num_processes = 4;
  request.port = 4711;
  request.digest = "llama, 2 ranks";
  return request;
}

JoinNonces sample_nonces() {
  JoinNonces nonces;
  fill_randomly(nonces.challenger);
  return nonces;
}

TEST(JoinMessages, WhatIsSentIsWhatIsRead) {
  const JoinRequest request = sample_request();
  const Result<JoinRequest> read = decode_join_request(encode(request, kKey, {}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->nonce, request.nonce);
  EXPECT_EQ(read->process, 3u);
  EXPECT_EQ(read->port, 4711);
  EXPECT_EQ(read->digest, request.digest);

  Roster roster;
  roster.members = {{"10.0.0.1", 1}, {"fe80::1", 2}};
  const Result<Roster> members = decode_roster(encode(roster, kKey, {}));
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(members->members[1].host, "fe80::1");
  EXPECT_EQ(members->members[1].port, 2);

  const Result<JoinVerdict> verdict = decode_join_verdict(encode({false, "no"}, kKey, {}));
  ASSERT_TRUE(verdict.ok());
  EXPECT_FALSE(verdict->accepted);
  EXPECT_EQ(verdict->reason, "no");
}

TEST(JoinMessages, AProofHoldsForOneSecretOneExchangeAndEveryByte) {
  const JoinNonces nonces = sample_nonces();
  const std::vector<uint8_t> message = encode(sample_request(), kKey, nonces);
  EXPECT_TRUE(is_proven(message, kKey, nonces));
  EXPECT_FALSE(is_proven(message, kKey + "!", nonces));
  EXPECT_FALSE(is_proven(message, kKey, sample_nonces()));
  EXPECT_FALSE(is_proven(message, kKey, {nonces.joiner, nonces.challenger}));
  for (size_t i = 0; i < message.size(); ++i) {
    std::vector<uint8_t> changed = message;
    changed[i] ^= 1;
    EXPECT_FALSE(is_proven(changed, kKey, nonces)) << i;
  }
  EXPECT_FALSE(is_proven({}, kKey, nonces));
}

TEST(JoinMessages, NoMessageIsTakenForAnother) {
  EXPECT_FALSE(decode_join_request(encode({true, ""}, kKey, {})).ok());
  EXPECT_FALSE(decode_roster(encode(sample_request(), kKey, {})).ok());
  EXPECT_FALSE(decode_join_verdict(encode(JoinChallenge{})).ok());
}

TEST(JoinMessages, WhatIsCutOrLongerIsRefused) {
  std::vector<uint8_t> message = encode(sample_request(), kKey, {});
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_FALSE(decode_join_request(std::span(message).first(size)).ok()) << size;
  }
  message.push_back(0);
  EXPECT_FALSE(decode_join_request(message).ok());
}

TEST(JoinMessages, AnotherVersionIsNamedAndLongMessagesAreRefusedAtTheirBeginning) {
  std::vector<uint8_t> message = encode(sample_request(), kKey, {});
  message[4] = 9;
  const auto envelope = read_join_envelope(message);
  EXPECT_NE(envelope.status().message().find("version 9"), std::string::npos);

  message = encode(sample_request(), kKey, {});
  message[9] = 0xff;  // of the body's size
  EXPECT_FALSE(read_join_envelope(std::span(message).first(12)).ok());
  EXPECT_FALSE(read_join_envelope(std::span(message).first(11)).value().has_value());
}

}  // namespace
}  // namespace atom
