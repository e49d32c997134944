#include "tokenizer/chat_template/heap.h"

#include <algorithm>
#include <ctime>

#include "tokenizer/chat_template/scope.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

constexpr size_t kObjectSize = 96;  // allocation, reference counts and header of any object

// Looking at the clock takes a fraction of a microsecond, so many steps take some 100.
constexpr uint64_t kStepsBetweenLooks = 4096;

// This thread's: on a busy machine an honest template gets its time, too.
std::chrono::nanoseconds cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

int depth_of(const ValueList& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

Heap::Heap(const ChatTemplateLimits& limits, const std::atomic<bool>* cancelled)
    : limits_(limits), cancelled_(cancelled), steps_behind_(limits.max_steps) {}

Heap::~Heap() {
  for (const auto& scope : closures_) scope->variables.clear();
  for (const auto& scope : closures_) scope->parent.reset();
  for (const auto& name_space : namespaces_) name_space->attributes.clear();
}

void Heap::look_around(uint64_t count) {
  const uint64_t left = steps_until_look_ + steps_behind_;
  if (count > left) {
    fail_limit("the template did not end within {} steps: does it loop over too much?",
               limits_.max_steps);
  }
  if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
    throw TemplateError(StatusCode::kAborted, "the client has gone");
  }
  const std::chrono::nanoseconds now = cpu_time();
  if (!deadline_) deadline_ = now + limits_.max_time;
  if (now > *deadline_) {
    fail_limit("the template did not end within {} ms: does it loop over too much?",
               limits_.max_time.count());
  }
  steps_until_look_ = std::min(left, std::max(count, kStepsBetweenLooks));
  steps_behind_ = left - steps_until_look_;
}

void Heap::fail_memory() const {
  fail_limit("the values of the template need more than {} bytes", limits_.max_memory);
}

void Heap::check_depth(int depth) {
  if (depth > kMaxValueDepth) {
    fail_limit("lists and dicts are nested deeper than {} levels", kMaxValueDepth);
  }
}

void Heap::require(size_t bytes) const {
  if (bytes > limits_.max_memory - bytes_live_) fail_memory();
}

void Heap::take(size_t bytes) {
  require(bytes);
  bytes_live_ += bytes;
}

Value Heap::string(std::string text) {
  step_bytes(text.size());
  return Value(std::make_shared<const String>(
      String{Charge(this, kObjectSize + text.size()), std::move(text)}));
}

Value Heap::sequence(SequenceKind kind, ValueList items) {
  step(1 + items.size() / 8);
  const int depth = depth_of(items);
  check_depth(depth);
  Charge charge(this, kObjectSize + items.size() * sizeof(Value));
  return Value(
      std::make_shared<const Sequence>(Sequence{std::move(charge), kind, std::move(items), depth}));
}

Value Heap::dict(std::vector<DictEntry> entries) {
  step(1 + entries.size() / 8);
  int depth = 0;
  for (const DictEntry& entry : entries) {
    depth = std::max({depth, entry.key.depth(), entry.value.depth()});
  }
  check_depth(++depth);
  Charge charge(this, kObjectSize + entries.size() * sizeof(DictEntry));
  return Value(std::make_shared<const Dict>(Dict{std::move(charge), std::move(entries), depth}));
}

Value Heap::method(std::string_view name, NativeFunction native, Value self) {
  check_depth(1 + self.depth());
  return Value(std::make_shared<const Function>(Function{
      Charge(this, kObjectSize), std::string(name), native, std::move(self), nullptr, nullptr}));
}

Value Heap::macro(const MacroStatement& macro, std::string name, std::shared_ptr<Scope> closure) {
  if (std::find(closures_.rbegin(), closures_.rend(), closure) == closures_.rend()) {
    take(2 * kObjectSize);
    closures_.push_back(closure);
  }
  step(1 + closures_.size() / 8);
  return Value(std::make_shared<const Function>(Function{
      Charge(this, kObjectSize), std::move(name), nullptr, Value(), &macro, std::move(closure)}));
}

Value Heap::name_space() {
  auto name_space = std::make_shared<Namespace>();
  name_space->charge = Charge(this, kObjectSize);
  namespaces_.push_back(name_space);
  return Value(std::move(name_space));
}

std::shared_ptr<Loop> Heap::loop(Items items) {
  check_depth(1 + items.depth());
  auto loop = std::make_shared<Loop>(std::move(items));
  loop->charge = Charge(this, kObjectSize);
  loop->depth = 1 + loop->items.depth();
  return loop;
}

}  // namespace atom::jinja
