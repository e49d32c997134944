#include "tokenizer/chat_template/value.h"

#include "tokenizer/chat_template/heap.h"

namespace atom::jinja {

Charge::Charge(Heap* heap, size_t bytes) : heap_(heap) {
  grow(bytes);
}

Charge::Charge(Charge&& other) noexcept
    : heap_(std::exchange(other.heap_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Charge& Charge::operator=(Charge&& other) noexcept {
  std::swap(heap_, other.heap_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Charge::~Charge() {
  if (heap_ != nullptr) heap_->release(bytes_);
}

void Charge::grow(size_t bytes) {
  if (heap_ == nullptr) return;
  heap_->take(bytes);
  bytes_ += bytes;
}

Value Value::undefined(std::string reason) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::literal(std::string text) {
  return Value(std::make_shared<const String>(String{Charge(), std::move(text)}));
}

double Value::number() const {
  return is_real() ? std::get<double>(data_) : static_cast<double>(integral());
}

const std::string& Value::text() const {
  return std::get<std::shared_ptr<const String>>(data_)->text;
}

std::string Value::undefined_reason() const {
  const auto& reason = std::get<Undefined>(data_).reason;
  return reason ? *reason : "the value is undefined";
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return integral() != 0;
  if (is_real()) return number() != 0;
  if (is_string()) return !text().empty();
  if (is_sequence()) {
    return sequence().kind == SequenceKind::kGenerator || !sequence().items.empty();
  }
  if (is_dict()) return !dict().entries.empty();
  return true;
}

bool Value::same_object(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&other](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        const T& theirs = std::get<T>(other.data_);
        if constexpr (std::is_same_v<T, None> || std::is_same_v<T, Undefined>) {
          return true;
        } else {
          return mine == theirs;
        }
      },
      data_);
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth;
  if (is_loop()) return loop().depth;
  if (is_function()) return 1 + function().self.depth();
  return 0;
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_boolean()) return "bool";
  if (value.is_integer()) return "int";
  if (value.is_real()) return "float";
  if (value.is_string()) return "str";
  if (value.is_dict()) return "dict";
  if (value.is_namespace()) return "Namespace";
  if (value.is_function()) return value.function().macro ? "Macro" : "method";
  if (value.is_loop()) return "LoopContext";
  switch (value.sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kDictKeys:
      return "dict_keys";
    case SequenceKind::kDictValues:
      return "dict_values";
    case SequenceKind::kDictItems:
      return "dict_items";
    case SequenceKind::kGenerator:
      return "generator";
  }
  return "object";
}

}  // namespace atom::jinja
