// One end of a connection between two ranks that carries frames, each with a header that says which
// operation it belongs to. Never blocks; of one thread.
//
// The other end is believed in nothing: a frame other than the one that the operation needs next is
// an error, not a reason to write somewhere. Only messages, which have an order of their own beside
// that of collectives, may come before they are asked for and are kept meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace atom {

enum class TcpOperation : uint8_t {
  kAllReduce,
  kAllReduceParts,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kBarrier,
  kMessage,
};

// As it is on the wire. Both ends are of one byte order: they agreed on a version that says so.
struct TcpFrameHeader {
  static constexpr uint32_t kMagic = 0x4D4F5441;

  uint32_t magic = kMagic;
  TcpOperation operation = TcpOperation::kBarrier;
  uint8_t reduce_op = 0;
  uint8_t dtype = 0;
  uint8_t root = 0;
  uint64_t round = 0;  // of the group's collectives, or of the messages of these two
  int64_t num_bytes = 0;

  bool is_message() const { return operation == TcpOperation::kMessage; }
  bool operator==(const TcpFrameHeader&) const = default;
};
static_assert(sizeof(TcpFrameHeader) == 24);

class TcpLink {
 public:
  // What is kept at most before it is asked for; further bytes stay with the kernel and the sender.
  static constexpr int64_t kMaxKept = int64_t{1} << 30;

  // `socket`: connected, of a stream.
  explicit TcpLink(FileDescriptor socket);

  int fd() const { return socket_.get(); }

  // `data` has to live until the frame is sent. One at a time.
  void send(const TcpFrameHeader& header, const void* data);
  bool is_sending() const { return num_sent_ < num_to_send_; }
  // Which frame of its kind has to come next, and where its bytes go.
  void expect(const TcpFrameHeader& header, void* target);
  bool is_expecting() const { return expecting_; }
  // Whether `operation` cannot go on without this link: what was begun is forgotten.
  void give_up();

  // Sends and receives what can be without waiting; the error says why there is no more to come.
  Status flush();
  Status receive();
  // The same, and keeps what nobody asked for, while it is not too much.
  Status receive_ahead();

 private:
  using Bytes = std::vector<char>;
  struct Kept {
    TcpFrameHeader header;
    Bytes bytes;
  };

  template <typename Enough>
  Status receive_until(const Enough& enough);
  // Takes bytes of the buffer.
  Status parse();
  Status begin_frame();
  Status end_frame();
  // The oldest kept frame of the kind that is expected, if there is one.
  Status look_among_kept();
  Status check(const TcpFrameHeader& header) const;
  // Bytes from the socket, none for now: 0.
  Result<size_t> read(char* target, size_t size);

  FileDescriptor socket_;

  TcpFrameHeader out_header_;
  const char* out_data_ = nullptr;
  size_t num_sent_ = 0;  // of header and data together
  size_t num_to_send_ = 0;

  bool expecting_ = false;
  TcpFrameHeader expected_;
  char* expected_target_ = nullptr;
  Status unexpected_;  // a kept frame was not what was asked for

  std::unique_ptr<char[]> buffer_;  // bytes [begin_, end_) are not parsed yet
  size_t begin_ = 0;
  size_t end_ = 0;
  bool in_frame_ = false;
  TcpFrameHeader in_header_;
  char* in_target_ = nullptr;  // into bytes_, or where it is expected
  int64_t in_missing_ = 0;
  bool in_place_ = false;
  Bytes bytes_;
  std::deque<Kept> kept_;
  int64_t num_kept_ = 0;  // bytes
};

}  // namespace atom
