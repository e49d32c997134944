// Where processes come to join: listens, asks whoever connects for the proof that it knows the
// secret, and hands on those that have it. Strangers cost a bounded number of bytes, connections
// and seconds; in a flood of them who knows the secret may have to come again. Of one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "comm/tcp/join_messages.h"
#include "comm/tcp/join_socket.h"

namespace atom {

class JoinDoor {
 public:
  // Connections that have not proved anything yet; the oldest makes room for one more.
  static constexpr size_t kMaxStrangers = 64;
  static constexpr std::chrono::seconds kStrangersTime{5};

  // Somebody who knows the secret. To be answered.
  struct Visitor {
    FileDescriptor socket;
    JoinRequest request;
    JoinNonces nonces;
  };

  // `listener`: listening, nonblocking.
  JoinDoor(FileDescriptor listener, std::string secret);

  // The next visitor; none when the patience is over or one of `others` is readable.
  std::optional<Visitor> wait(const JoinPatience& patience, const std::vector<int>& others = {});

  int64_t num_refused() const { return num_refused_; }
  const std::string& secret() const { return secret_; }

 private:
  struct Stranger {
    FileDescriptor socket;
    JoinNonce nonce{};
    JoinPatience::Clock::time_point deadline;
    std::vector<uint8_t> received;
  };
  using Strangers = std::list<Stranger>;

  void let_in();
  void drop_late();
  // A visitor when the stranger has become one; it leaves the list then, or when it is refused.
  std::optional<Visitor> hear(Strangers::iterator stranger);
  Result<std::optional<Visitor>> examine(Stranger* stranger);
  void refuse(Strangers::iterator stranger, const Status& reason);

  FileDescriptor listener_;
  const std::string secret_;
  Strangers strangers_;
  int64_t num_refused_ = 0;
  JoinPatience::Clock::time_point told_at_;
};

}  // namespace atom
