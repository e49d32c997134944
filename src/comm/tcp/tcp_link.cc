#include "comm/tcp/tcp_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <utility>

namespace atom {
namespace {

constexpr size_t kLinkBuffer = 64 << 10;
constexpr std::array<const char*, 8> kOperationNames = {"all_reduce",
                                                        "all_reduce",
                                                        "all_gather",
                                                        "reduce_scatter",
                                                        "all_to_all",
                                                        "broadcast",
                                                        "barrier",
                                                        "message"};

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

std::string describe(const TcpFrameHeader& header) {
  return fmt::format("{} {} of {} bytes",
                     kOperationNames[static_cast<size_t>(header.operation)],
                     header.round,
                     header.num_bytes);
}

}  // namespace

TcpLink::TcpLink(FileDescriptor socket)
    : socket_(std::move(socket)), buffer_(std::make_unique<char[]>(kLinkBuffer)) {}

void TcpLink::send(const TcpFrameHeader& header, const void* data) {
  CHECK(!is_sending());
  out_header_ = header;
  out_data_ = static_cast<const char*>(data);
  num_sent_ = 0;
  num_to_send_ = sizeof(header) + static_cast<size_t>(header.num_bytes);
}

Status TcpLink::flush() {
  while (is_sending()) {
    std::array<iovec, 2> parts;
    size_t num_parts = 0;
    size_t in_data = 0;
    if (num_sent_ < sizeof(out_header_)) {
      parts[num_parts++] = {reinterpret_cast<char*>(&out_header_) + num_sent_,
                            sizeof(out_header_) - num_sent_};
    } else {
      in_data = num_sent_ - sizeof(out_header_);
    }
    if (const size_t left = static_cast<size_t>(out_header_.num_bytes) - in_data; left > 0) {
      parts[num_parts++] = {const_cast<char*>(out_data_) + in_data, left};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = num_parts;
    const ssize_t count = ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && would_block()) return {};
    if (count < 0) return unavailable("{}", ::strerror(errno));
    num_sent_ += static_cast<size_t>(count);
  }
  return {};
}

void TcpLink::expect(const TcpFrameHeader& header, void* target) {
  CHECK(!expecting_);
  expecting_ = true;
  expected_ = header;
  expected_target_ = static_cast<char*>(target);
  unexpected_ = look_among_kept();
}

void TcpLink::give_up() {
  // A frame that is half sent or half received makes the connection useless from here on.
  expecting_ = false;
  num_sent_ = num_to_send_ = 0;
}

Status TcpLink::check(const TcpFrameHeader& header) const {
  if (header == expected_) return {};
  return unavailable("{} came where {} was to come", describe(header), describe(expected_));
}

Status TcpLink::look_among_kept() {
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& frame) {
    return frame.header.is_message() == expected_.is_message();
  });
  if (kept == kept_.end()) return {};
  RETURN_IF_ERROR(check(kept->header));
  std::copy(kept->bytes.begin(), kept->bytes.end(), expected_target_);
  num_kept_ -= kept->header.num_bytes;
  kept_.erase(kept);
  expecting_ = false;
  return {};
}

Status TcpLink::begin_frame() {
  memcpy(&in_header_, buffer_.get() + begin_, sizeof(in_header_));
  begin_ += sizeof(in_header_);
  if (in_header_.magic != TcpFrameHeader::kMagic ||
      static_cast<size_t>(in_header_.operation) >= kOperationNames.size() ||
      in_header_.num_bytes < 0) {
    return unavailable("what came is no frame");
  }
  in_frame_ = true;
  in_missing_ = in_header_.num_bytes;
  in_place_ = expecting_ && in_header_.is_message() == expected_.is_message();
  if (in_place_) {
    RETURN_IF_ERROR(check(in_header_));
    in_target_ = expected_target_;
    return {};
  }
  if (in_missing_ > kMaxKept) return unavailable("{} is too long", describe(in_header_));
  bytes_.resize(static_cast<size_t>(in_missing_));
  in_target_ = bytes_.data();
  return {};
}

Status TcpLink::end_frame() {
  in_frame_ = false;
  if (in_place_) {
    expecting_ = false;
    return {};
  }
  num_kept_ += in_header_.num_bytes;
  kept_.push_back({in_header_, std::exchange(bytes_, {})});
  return expecting_ ? look_among_kept() : Status();
}

Status TcpLink::parse() {
  if (!in_frame_) {
    if (end_ - begin_ < sizeof(TcpFrameHeader)) return {};
    RETURN_IF_ERROR(begin_frame());
  }
  const auto count = std::min<int64_t>(in_missing_, static_cast<int64_t>(end_ - begin_));
  if (count > 0) memcpy(in_target_, buffer_.get() + begin_, static_cast<size_t>(count));
  begin_ += static_cast<size_t>(count);
  in_target_ += count;
  in_missing_ -= count;
  return in_missing_ == 0 ? end_frame() : Status();
}

Result<size_t> TcpLink::read(char* target, size_t size) {
  const ssize_t count = ::recv(fd(), target, size, MSG_DONTWAIT);
  if (count > 0) return static_cast<size_t>(count);
  if (count == 0) return unavailable("the connection was closed");
  if (would_block()) return size_t{0};
  return unavailable("{}", ::strerror(errno));
}

template <typename Enough>
Status TcpLink::receive_until(const Enough& enough) {
  RETURN_IF_ERROR(unexpected_);
  while (!enough()) {
    const size_t num_buffered = end_ - begin_;
    if (in_frame_ ? num_buffered > 0 : num_buffered >= sizeof(TcpFrameHeader)) {
      RETURN_IF_ERROR(parse());
      continue;
    }
    if (in_frame_ && in_missing_ >= static_cast<int64_t>(kLinkBuffer)) {
      // Long ones go where they belong without a detour.
      ASSIGN_OR_RETURN(const size_t count, read(in_target_, static_cast<size_t>(in_missing_)));
      if (count == 0) return {};
      in_target_ += count;
      in_missing_ -= static_cast<int64_t>(count);
      if (in_missing_ == 0) RETURN_IF_ERROR(end_frame());
      continue;
    }
    std::copy(buffer_.get() + begin_, buffer_.get() + end_, buffer_.get());
    begin_ = 0;
    end_ = num_buffered;
    ASSIGN_OR_RETURN(const size_t count, read(buffer_.get() + end_, kLinkBuffer - end_));
    if (count == 0) return {};
    end_ += count;
  }
  return {};
}

Status TcpLink::receive() {
  return receive_until([this] { return !expecting_; });
}

Status TcpLink::receive_ahead() {
  return receive_until([this] { return num_kept_ >= kMaxKept; });
}

}  // namespace atom
