// Whether the ranks of a group live and go on together: a thread that exchanges short messages with
// every other rank on sockets of their own, beside what operations send.
//
// Each says every kBeat that it lives, and why it fails or leaves, which ends the group here and,
// as every rank passes it on, everywhere. A rank of which nothing is heard for kSilence has failed:
// its process is stopped or gone, its machine is off, or the network between is cut. Time counts
// only while this process runs, so one that was stopped itself does not take the others for lost.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"

namespace atom {

class GroupWatch {
 public:
  static constexpr std::chrono::milliseconds kBeat{200};
  static constexpr std::chrono::milliseconds kSilence{3000};
  // Until the first of it: a rank may still be connecting to others.
  static constexpr std::chrono::milliseconds kFirstSilence{20'000};

  // sockets[i] leads to rank i; none at `rank`.
  GroupWatch(int rank, std::vector<FileDescriptor> sockets);
  // Leaves: the others are told why the group failed, or that this rank has left.
  ~GroupWatch();
  GroupWatch(const GroupWatch&) = delete;
  GroupWatch& operator=(const GroupWatch&) = delete;

  // From any thread.
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  Status status() const;
  void fail(Status reason);
  // Readable from the failure on, for poll().
  int failure_fd() const { return failed_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    FileDescriptor socket;
    std::string received;  // of a message that has not come whole
    Clock::duration silence{0};
    bool was_heard = false;
  };

  int size() const { return static_cast<int>(peers_.size()); }
  void loop();
  void wait();
  void hear(int peer);
  // False: what it said ends the group.
  bool parse(int peer);
  void count_silence(Clock::duration passed);
  void beat();
  void say_farewell();

  const int rank_;
  std::vector<Peer> peers_;  // of the thread
  FileDescriptor failed_;    // an eventfd
  std::atomic<bool> has_failed_{false};
  mutable Mutex mutex_;
  Status failure_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace atom
