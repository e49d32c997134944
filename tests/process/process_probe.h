// What a test wants to know of processes: this one's files and children, and how long things take.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace atom {

using Clock = std::chrono::steady_clock;

// Bounds on time hold as they are without sanitizers, which slow both processes down; with them
// they are longer by this.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTimeScale = 8;
#else
constexpr int kTimeScale = 1;
#endif

double milliseconds_since(Clock::time_point begin);

// Polls until `condition` holds; false after `limit` (already scaled).
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::milliseconds(60000));

size_t num_open_files();
// Of this process, zombies included.
std::vector<pid_t> children();
bool process_exists(pid_t pid);
// "S", "Z", ...; "" when there is no such process.
std::string process_state(pid_t pid);

}  // namespace atom
