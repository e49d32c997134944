// The front end's side of a profile: which action is allowed, and whom to tell what came of it.
// Any thread.
#pragma once

#include <functional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/messages.h"

namespace atom {

// A profile that has ended.
struct ProfileFile {
  std::string path;  // empty: it has only begun
  uint64_t num_spans = 0;
  uint64_t num_dropped_spans = 0;  // the latest, once it was full
};
using ProfileCallback = std::function<void(const Result<ProfileFile>&)>;

class ProfileControl {
 public:
  // Whether `action` may be asked of the core. If so `callback` is called exactly once, by
  // on_answer() or lose(). A profile that was lost is reported here, once, to who wants to end it.
  Status begin(ProfileAction action, ProfileCallback callback);
  void on_answer(const CoreProfile& answer);
  // The core is gone, with what it had recorded.
  void lose(const Status& why);

 private:
  Mutex mutex_;
  bool is_on_ GUARDED_BY(mutex_) = false;
  ProfileCallback callback_ GUARDED_BY(mutex_);  // null unless an answer is awaited
  Status lost_ GUARDED_BY(mutex_);  // ok unless a profile was lost that nobody has ended yet
};

}  // namespace atom
