#include "tokenizer/chat_template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "tokenizer/chat_template/limits.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

[[noreturn]] void fail_depth(int line) {
  throw TemplateError(StatusCode::kResourceExhausted,
                      fmt::format("the syntax is nested deeper than {} levels", kMaxSyntaxDepth),
                      line);
}

template <typename Node>
ExpressionPtr make(int line, Node node, std::initializer_list<const ExpressionPtr*> children = {}) {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  for (const ExpressionPtr* child : children) {
    if (*child) expression->height = std::max(expression->height, 1 + (*child)->height);
  }
  if (expression->height > kMaxSyntaxDepth) fail_depth(line);
  expression->node = std::move(node);
  return expression;
}

void raise_height(Expression* expression, const ExpressionPtr& child) {
  expression->height = std::max(expression->height, 1 + child->height);
  if (expression->height > kMaxSyntaxDepth) fail_depth(expression->line);
}

void raise_height(Expression* expression, const CallArguments& arguments) {
  for (const ExpressionPtr& argument : arguments.positional) raise_height(expression, argument);
  for (const auto& [name, argument] : arguments.named) raise_height(expression, argument);
}

Value parse_integer(const Token& token) {
  std::string digits;
  for (const char c : token.text) {
    if (c != '_') digits += c;
  }
  int base = 10;
  size_t start = 0;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    start = 2;
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data() + start, end, value, base);
  if (parsed.ptr != end || parsed.ec != std::errc()) {
    fail_at(token.line, "'{}' is not an integer of 64 bits", token.text);
  }
  return Value::integer(value);
}

Value parse_float(const Token& token) {
  std::string digits;
  for (const char c : token.text) {
    if (c != '_') digits += c;
  }
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
  return Value::real(value);
}

}  // namespace

class ExpressionParser::DepthGuard {
 public:
  explicit DepthGuard(ExpressionParser* parser) : parser_(*parser) {
    if (++parser_.depth_ > kMaxSyntaxDepth) fail_depth(parser_.tokens_.line());
  }
  ~DepthGuard() { --parser_.depth_; }

 private:
  ExpressionParser& parser_;
};

bool ExpressionParser::at_tuple_end() const {
  return tokens_.is(TokenType::kVariableEnd) || tokens_.is(TokenType::kBlockEnd) ||
         tokens_.is_operator(")");
}

ExpressionPtr ExpressionParser::parse_tuple(bool allow_condition) {
  const int line = tokens_.line();
  ExpressionPtr first = parse(allow_condition);
  if (!tokens_.is_operator(",")) return first;
  ExpressionPtr tuple = make(line, ListDisplay{{}, true});
  auto& items = std::get<ListDisplay>(tuple->node).items;
  raise_height(tuple.get(), first);
  items.push_back(std::move(first));
  while (tokens_.skip_operator(",") && !at_tuple_end()) {
    items.push_back(parse(allow_condition));
    raise_height(tuple.get(), items.back());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse(bool allow_condition) {
  const DepthGuard guard(this);
  return allow_condition ? parse_condition() : parse_or();
}

ExpressionPtr ExpressionParser::parse_condition() {
  const int line = tokens_.line();
  ExpressionPtr value = parse_or();
  while (tokens_.skip_name("if")) {
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      const DepthGuard guard(this);
      otherwise = parse_condition();
    }
    ExpressionPtr conditional = make(line, Conditional{}, {&condition, &value, &otherwise});
    conditional->node = Conditional{std::move(condition), std::move(value), std::move(otherwise)};
    value = std::move(conditional);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_and();
  while (tokens_.skip_name("or")) {
    ExpressionPtr right = parse_and();
    ExpressionPtr joined = make(line, Logical{}, {&left, &right});
    joined->node = Logical{false, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_not();
  while (tokens_.skip_name("and")) {
    ExpressionPtr right = parse_not();
    ExpressionPtr joined = make(line, Logical{}, {&left, &right});
    joined->node = Logical{true, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return parse_comparison();
  const DepthGuard guard(this);
  ExpressionPtr operand = parse_not();
  ExpressionPtr negated = make(line, Unary{}, {&operand});
  negated->node = Unary{UnaryOperator::kNot, std::move(operand)};
  return negated;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, Comparison> kSymbols[] = {
      {"==", Comparison::kEqual},
      {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater},
      {">=", Comparison::kGreaterEqual}};
  const int line = tokens_.line();
  ExpressionPtr first = parse_sum();
  CompareChain chain;
  int height = first->height;
  while (true) {
    std::optional<Comparison> comparison;
    for (const auto& [symbol, value] : kSymbols) {
      if (tokens_.skip_operator(symbol)) comparison = value;
      if (comparison) break;
    }
    if (!comparison && tokens_.skip_name("in")) comparison = Comparison::kIn;
    const Token& next = tokens_.next();
    if (!comparison && tokens_.is_name("not") && next.type == TokenType::kName &&
        next.text == "in") {
      tokens_.take();
      tokens_.take();
      comparison = Comparison::kNotIn;
    }
    if (!comparison) break;
    ExpressionPtr operand = parse_sum();
    height = std::max(height, operand->height);
    chain.rest.emplace_back(*comparison, std::move(operand));
  }
  if (chain.rest.empty()) return first;
  if (height >= kMaxSyntaxDepth) fail_depth(line);
  chain.first = std::move(first);
  ExpressionPtr compared = make(line, std::move(chain));
  compared->height = height + 1;
  return compared;
}

ExpressionPtr ExpressionParser::parse_sum() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_concatenation();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const BinaryOperator op =
        tokens_.take().text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    ExpressionPtr right = parse_concatenation();
    ExpressionPtr joined = make(line, Binary{}, {&left, &right});
    joined->node = Binary{op, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = tokens_.line();
  ExpressionPtr first = parse_product();
  if (!tokens_.is_operator("~")) return first;
  ExpressionPtr joined = make(line, Concatenation{}, {&first});
  auto& parts = std::get<Concatenation>(joined->node).parts;
  parts.push_back(std::move(first));
  while (tokens_.skip_operator("~")) {
    parts.push_back(parse_product());
    raise_height(joined.get(), parts.back());
  }
  return joined;
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kSymbols[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  const int line = tokens_.line();
  ExpressionPtr left = parse_power();
  while (tokens_.is(TokenType::kOperator)) {
    const auto* found = std::find_if(std::begin(kSymbols), std::end(kSymbols), [this](auto& entry) {
      return entry.first == tokens_.current().text;
    });
    if (found == std::end(kSymbols)) break;
    tokens_.take();
    ExpressionPtr right = parse_power();
    ExpressionPtr joined = make(line, Binary{}, {&left, &right});
    joined->node = Binary{found->second, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  const int line = tokens_.line();
  ExpressionPtr left = parse_unary(true);
  while (tokens_.skip_operator("**")) {
    ExpressionPtr right = parse_unary(true);
    ExpressionPtr joined = make(line, Binary{}, {&left, &right});
    joined->node = Binary{BinaryOperator::kPower, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool allow_filters) {
  const DepthGuard guard(this);
  const int line = tokens_.line();
  ExpressionPtr expression;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const UnaryOperator op =
        tokens_.take().text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    ExpressionPtr operand = parse_unary(false);
    expression = make(line, Unary{}, {&operand});
    expression->node = Unary{op, std::move(operand)};
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return allow_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = tokens_.line();
  const std::string_view text = tokens_.current().text;
  switch (tokens_.current().type) {
    case TokenType::kName: {
      tokens_.take();
      if (text == "true" || text == "True") return make(line, Literal{Value::boolean(true)});
      if (text == "false" || text == "False") return make(line, Literal{Value::boolean(false)});
      if (text == "none" || text == "None") return make(line, Literal{Value::none()});
      if (text == "loop") ++num_loop_reads_;
      return make(line, Name{std::string(text)});
    }
    case TokenType::kString:
      return parse_strings();
    case TokenType::kInteger:
      return make(line, Literal{parse_integer(tokens_.take())});
    case TokenType::kFloat:
      return make(line, Literal{parse_float(tokens_.take())});
    case TokenType::kOperator:
      if (text == "(") return parse_parentheses();
      if (text == "[") return parse_list();
      if (text == "{") return parse_dict();
      break;
    default:
      break;
  }
  fail_at(line, "expected an expression, found {}", tokens_.describe_current());
}

ExpressionPtr ExpressionParser::parse_parentheses() {
  const int line = tokens_.line();
  tokens_.expect_operator("(");
  if (tokens_.skip_operator(")")) return make(line, ListDisplay{{}, true});
  ExpressionPtr inner = parse_tuple(true);
  tokens_.expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_strings() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.is(TokenType::kString)) {
    const Token token = tokens_.take();
    text += unescape_literal(token.text, token.line);
  }
  return make(line, Literal{Value::literal(std::move(text))});
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr list = make(tokens_.line(), ListDisplay{{}, false});
  auto& items = std::get<ListDisplay>(list->node).items;
  tokens_.expect_operator("[");
  while (!tokens_.is_operator("]")) {
    if (!items.empty()) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator("]")) break;
    }
    items.push_back(parse());
    raise_height(list.get(), items.back());
  }
  tokens_.expect_operator("]");
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr dict = make(tokens_.line(), DictDisplay{});
  auto& entries = std::get<DictDisplay>(dict->node).entries;
  tokens_.expect_operator("{");
  while (!tokens_.is_operator("}")) {
    if (!entries.empty()) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator("}")) break;
    }
    ExpressionPtr key = parse();
    tokens_.expect_operator(":");
    ExpressionPtr value = parse();
    raise_height(dict.get(), key);
    raise_height(dict.get(), value);
    entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_operator("}");
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (tokens_.is_operator(".")) {
      object = parse_dot(std::move(object));
    } else if (tokens_.is_operator("[")) {
      object = parse_subscript(std::move(object));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.line();
      CallArguments arguments = parse_arguments();
      ExpressionPtr call = make(line, Call{}, {&object});
      raise_height(call.get(), arguments);
      call->node = Call{std::move(object), std::move(arguments)};
      object = std::move(call);
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::parse_dot(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator(".");
  if (tokens_.is(TokenType::kInteger)) {
    ExpressionPtr key = make(line, Literal{parse_integer(tokens_.take())});
    ExpressionPtr access = make(line, ItemAccess{}, {&object, &key});
    access->node = ItemAccess{std::move(object), std::move(key)};
    return access;
  }
  const Token name = tokens_.expect(TokenType::kName, "the name of an attribute behind '.'");
  ExpressionPtr access = make(line, AttributeAccess{}, {&object});
  access->node = AttributeAccess{std::move(object), std::string(name.text)};
  return access;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  ExpressionPtr parts[3];
  int num_colons = 0;
  while (!tokens_.is_operator("]")) {
    if (tokens_.skip_operator(":")) {
      if (++num_colons > 2) fail_at(line, "a slice has at most two ':'");
    } else if (parts[num_colons]) {
      fail_at(line, "expected ':' or ']', found {}", tokens_.describe_current());
    } else {
      parts[num_colons] = parse();
    }
  }
  tokens_.expect_operator("]");
  if (num_colons > 0) {
    ExpressionPtr slice = make(line, SliceAccess{}, {&object, &parts[0], &parts[1], &parts[2]});
    slice->node = SliceAccess{
        std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
    return slice;
  }
  if (!parts[0]) fail_at(line, "expected an index between '[' and ']'");
  ExpressionPtr access = make(line, ItemAccess{}, {&object, &parts[0]});
  access->node = ItemAccess{std::move(object), std::move(parts[0])};
  return access;
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      input = parse_filter(std::move(input));
    } else if (tokens_.skip_name("is")) {
      input = parse_test(std::move(input));
    } else if (tokens_.is_operator("(")) {
      input = parse_postfix(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input) {
  while (tokens_.skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::parse_filters_after_bar(ExpressionPtr input) {
  return parse_filters(parse_filter(std::move(input)));
}

ExpressionPtr ExpressionParser::block_text(int line) {
  return make(line, BlockText{});
}

std::string ExpressionParser::parse_dotted_name(std::string_view wanted) {
  std::string name(tokens_.expect(TokenType::kName, wanted).text);
  while (tokens_.skip_operator(".")) {
    name += '.';
    name += tokens_.expect(TokenType::kName, wanted).text;
  }
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.line();
  std::string name = parse_dotted_name("the name of a filter behind '|'");
  CallArguments arguments;
  if (tokens_.is_operator("(")) arguments = parse_arguments();
  ExpressionPtr filter = make(line, FilterCall{}, {&input});
  raise_height(filter.get(), arguments);
  filter->node = FilterCall{std::move(input), std::move(name), std::move(arguments)};
  return filter;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = tokens_.line();
  const bool is_negated = tokens_.skip_name("not");
  std::string name = parse_dotted_name("the name of a test behind 'is'");
  CallArguments arguments;
  const bool begins_argument = tokens_.is(TokenType::kName) || tokens_.is(TokenType::kString) ||
                               tokens_.is(TokenType::kInteger) || tokens_.is(TokenType::kFloat) ||
                               tokens_.is_operator("[") || tokens_.is_operator("{");
  const bool continues = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  if (tokens_.is_operator("(")) {
    arguments = parse_arguments();
  } else if (begins_argument && !continues) {
    if (tokens_.is_name("is")) fail_at(line, "tests cannot be chained: use 'and'");
    // `x is none if c`, `x is in y`: the keyword ends the test, an operand does not.
    if (!tokens_.is_name("if") && !tokens_.is_name("not") && !tokens_.is_name("in")) {
      const DepthGuard guard(this);
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
  }
  ExpressionPtr test = make(line, TestCall{}, {&input});
  raise_height(test.get(), arguments);
  test->node = TestCall{std::move(input), std::move(name), std::move(arguments), is_negated};
  return test;
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  tokens_.expect_operator("(");
  bool is_first = true;
  while (!tokens_.is_operator(")")) {
    if (!is_first) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator(")")) break;
    }
    is_first = false;
    const int line = tokens_.line();
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      fail_at(line, "'*' and '**' in a call are not supported: name the arguments");
    }
    const Token& next = tokens_.next();
    if (tokens_.is(TokenType::kName) && next.type == TokenType::kOperator && next.text == "=") {
      std::string name(tokens_.take().text);
      tokens_.take();
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      if (!arguments.named.empty()) fail_at(line, "an unnamed argument stands behind a named one");
      arguments.positional.push_back(parse());
    }
  }
  tokens_.expect_operator(")");
  return arguments;
}

}  // namespace atom::jinja
