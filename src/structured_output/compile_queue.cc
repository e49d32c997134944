#include "structured_output/compile_queue.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace atom {

using Clock = std::chrono::steady_clock;
using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;

namespace {

Status too_many_lost() {
  return unavailable("too many grammars take too long to compile: try again later");
}

}  // namespace

// Lives as long as a thread needs it.
struct CompileQueue::Shared {
  struct Job {
    uint64_t id;
    std::string text;
    size_t hash;                   // of the text
    Clock::time_point begin = {};  // of its compilation

    bool asks_the_same(const Job& other) const { return hash == other.hash && text == other.text; }
  };

  explicit Shared(MakeCompiler make) : make_compiler(std::move(make)) {}

  static void run(const std::shared_ptr<Shared>& shared);
  std::optional<Job> next_job();
  // False: it was given up meanwhile, and with it this thread.
  bool finish(uint64_t id, const Compiled& grammar);
  // The first that waits and is not being compiled for another one, or the end.
  std::deque<Job>::iterator find_startable() REQUIRES(mutex);
  // Answers the job, and those that wait for the same grammar.
  void answer(const Job& job, const Compiled& grammar) REQUIRES(mutex);
  // Those that run for longer than `limit`; how many there were.
  int give_up_late(std::chrono::milliseconds limit) REQUIRES(mutex);
  Compiled compile(const std::string& text);

  const MakeCompiler make_compiler;
  Mutex compiler_mutex;
  bool has_tried GUARDED_BY(compiler_mutex) = false;
  Status failure GUARDED_BY(compiler_mutex);
  std::unique_ptr<GrammarCompiler> compiler GUARDED_BY(compiler_mutex);  // const once set
  std::atomic<GrammarCompiler*> ready = nullptr;  // the same, once it is there

  Mutex mutex;
  Condition changed;
  std::deque<Job> waiting GUARDED_BY(mutex);
  std::map<uint64_t, Job> running GUARDED_BY(mutex);
  std::vector<Done> done GUARDED_BY(mutex);
  int num_lost GUARDED_BY(mutex) = 0;
  bool stopping GUARDED_BY(mutex) = false;
};

std::deque<CompileQueue::Shared::Job>::iterator CompileQueue::Shared::find_startable() {
  return std::ranges::find_if(waiting, [this](const Job& job) REQUIRES(mutex) {
    return std::ranges::none_of(running,
                                [&](const auto& other) { return other.second.asks_the_same(job); });
  });
}

std::optional<CompileQueue::Shared::Job> CompileQueue::Shared::next_job() {
  MutexLock lock(&mutex);
  std::deque<Job>::iterator next;
  while (!stopping && (next = find_startable()) == waiting.end()) changed.wait(&lock);
  if (stopping) return std::nullopt;
  Job job = std::move(*next);
  waiting.erase(next);
  job.begin = Clock::now();
  running.emplace(job.id, job);
  return job;
}

void CompileQueue::Shared::answer(const Job& job, const Compiled& grammar) {
  done.push_back({job.id, grammar});
  std::erase_if(waiting, [&](const Job& other) REQUIRES(mutex) {
    if (!other.asks_the_same(job)) return false;
    done.push_back({other.id, grammar});
    return true;
  });
}

int CompileQueue::Shared::give_up_late(std::chrono::milliseconds limit) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(limit).count();
  return static_cast<int>(std::erase_if(running, [&](const auto& entry) REQUIRES(mutex) {
    const Job& job = entry.second;
    if (now - job.begin <= limit) return false;
    answer(job, invalid_argument("the grammar takes more than {:.3g} s to compile", seconds));
    ++num_lost;
    return true;
  }));
}

bool CompileQueue::Shared::finish(uint64_t id, const Compiled& grammar) {
  const MutexLock lock(&mutex);
  const auto job = running.find(id);
  if (job != running.end()) {
    answer(job->second, grammar);
    running.erase(job);
    return true;
  }
  --num_lost;
  return false;
}

Compiled CompileQueue::Shared::compile(const std::string& text) {
  {
    const MutexLock lock(&compiler_mutex);
    if (!has_tried) {
      Result<std::unique_ptr<GrammarCompiler>> made = make_compiler();
      failure = made.status();
      if (made.ok()) compiler = std::move(made).value();
      ready = compiler.get();
      has_tried = true;
    }
    RETURN_IF_ERROR(failure);
  }
  return ready.load()->compile(text);
}

void CompileQueue::Shared::run(const std::shared_ptr<Shared>& shared) {
  while (std::optional<Job> job = shared->next_job()) {
    if (!shared->finish(job->id, shared->compile(job->text))) return;
  }
}

CompileQueue::CompileQueue(MakeCompiler make_compiler, const Limits& limits)
    : limits_(limits), shared_(std::make_shared<Shared>(std::move(make_compiler))) {}

CompileQueue::~CompileQueue() {
  {
    const MutexLock lock(&shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
}

void CompileQueue::start_threads() {
  for (; num_threads_ < limits_.num_threads; ++num_threads_) {
    // Nobody waits for it: XGrammar cannot be interrupted.
    std::thread([shared = shared_] { Shared::run(shared); }).detach();
  }
}

void CompileQueue::submit(uint64_t id, std::string structural_tag) {
  ++num_unfinished_;
  start_threads();
  const size_t hash = std::hash<std::string>()(structural_tag);
  {
    const MutexLock lock(&shared_->mutex);
    if (shared_->num_lost >= limits_.num_lost_threads) {
      shared_->done.push_back({id, too_many_lost()});
      return;
    }
    shared_->waiting.push_back({id, std::move(structural_tag), hash});
  }
  shared_->changed.notify_one();
}

std::vector<CompileQueue::Done> CompileQueue::take_done() {
  std::vector<Done> done;
  {
    const MutexLock lock(&shared_->mutex);
    num_threads_ -= shared_->give_up_late(limits_.time);
    // The others would wait for what may never end.
    if (shared_->num_lost >= limits_.num_lost_threads) {
      for (const Shared::Job& job : std::exchange(shared_->waiting, {})) {
        shared_->done.push_back({job.id, too_many_lost()});
      }
    } else if (!shared_->waiting.empty()) {
      start_threads();
    }
    done = std::exchange(shared_->done, {});
  }
  num_unfinished_ -= done.size();
  return done;
}

std::shared_ptr<const CompiledGrammar> CompileQueue::find(const std::string& structural_tag) {
  GrammarCompiler* compiler = shared_->ready;
  return compiler == nullptr ? nullptr : compiler->find(structural_tag);
}

}  // namespace atom
