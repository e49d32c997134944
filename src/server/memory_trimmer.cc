#include "server/memory_trimmer.h"

#include <malloc.h>
#include <pthread.h>

#include <chrono>
#include <utility>

namespace atom::server {
namespace {

// Looked at this often; what a request made of its body is freed about when the body is.
constexpr std::chrono::seconds kInterval{1};
// Less is not worth the locks that trimming takes.
constexpr size_t kWorthTrimming = 4 << 20;
// Blocks from here on are mappings of their own. Without this the allocator raises the bound to the
// largest block that was freed, 32 MiB, and keeps what is below it.
constexpr int kMappedBlockSize = 1 << 20;

}  // namespace

MemoryTrimmer::MemoryTrimmer(std::function<size_t()> freed)
    : freed_(std::move(freed)), thread_([this] { run(); }) {}

MemoryTrimmer::~MemoryTrimmer() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void MemoryTrimmer::run() {
  pthread_setname_np(pthread_self(), "atom-trim");
  size_t at_last_trim = 0;
  size_t before = 0;
  MutexLock lock(&mutex_);
  for (;;) {
    const auto end = std::chrono::steady_clock::now() + kInterval;
    while (!stopping_ && changed_.wait_until(&lock, end) == std::cv_status::no_timeout) {
    }
    if (stopping_) return;
    const size_t now = freed_();
    const bool is_quiet = now - before < kWorthTrimming;  // else more is being freed right now
    before = now;
    if (!is_quiet || now - at_last_trim < kWorthTrimming) continue;
    at_last_trim = now;
    malloc_trim(0);
  }
}

void set_up_allocator() {
  mallopt(M_MMAP_THRESHOLD, kMappedBlockSize);
  mallopt(M_TRIM_THRESHOLD, kMappedBlockSize);
}

}  // namespace atom::server
