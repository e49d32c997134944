// The front end's side of a profile: which action is allowed, and whom to tell what came of it.
// Any thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>

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
  std::mutex mutex_;
  bool is_on_ = false;        // guarded by mutex_, like all that follows
  ProfileCallback callback_;  // null unless an answer is awaited
  Status lost_;               // ok unless a profile was lost that nobody has ended yet
};

}  // namespace atom
