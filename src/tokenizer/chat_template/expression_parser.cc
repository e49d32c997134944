#include "tokenizer/chat_template/expression_parser.h"

#include <algorithm>
#include <optional>

#include "tokenizer/chat_template/expression_nodes.h"
#include "tokenizer/chat_template/limits.h"
#include "tokenizer/chat_template/number_literal.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

bool ExpressionParser::at_tuple_end() const {
  return tokens_.is(TokenType::kVariableEnd) || tokens_.is(TokenType::kBlockEnd) ||
         tokens_.is_operator(")");
}

ExpressionPtr ExpressionParser::parse_tuple(bool allow_condition) {
  const int line = tokens_.line();
  ExpressionPtr first = parse(allow_condition);
  if (!tokens_.is_operator(",")) return first;
  ExpressionPtr tuple = make_expression(line, ListDisplay{{}, true});
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
  const DepthGuard guard(&depth_, tokens_.line());
  return allow_condition ? parse_condition() : parse_or();
}

ExpressionPtr ExpressionParser::parse_condition() {
  const int line = tokens_.line();
  ExpressionPtr value = parse_or();
  while (tokens_.skip_name("if")) {
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      const DepthGuard guard(&depth_, tokens_.line());
      otherwise = parse_condition();
    }
    ExpressionPtr conditional =
        make_expression(line, Conditional{}, {&condition, &value, &otherwise});
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
    ExpressionPtr joined = make_expression(line, Logical{}, {&left, &right});
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
    ExpressionPtr joined = make_expression(line, Logical{}, {&left, &right});
    joined->node = Logical{true, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return parse_comparison();
  const DepthGuard guard(&depth_, tokens_.line());
  ExpressionPtr operand = parse_not();
  ExpressionPtr negated = make_expression(line, Unary{}, {&operand});
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
  ExpressionPtr compared = make_expression(line, std::move(chain));
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
    ExpressionPtr joined = make_expression(line, Binary{}, {&left, &right});
    joined->node = Binary{op, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = tokens_.line();
  ExpressionPtr first = parse_product();
  if (!tokens_.is_operator("~")) return first;
  ExpressionPtr joined = make_expression(line, Concatenation{}, {&first});
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
    ExpressionPtr joined = make_expression(line, Binary{}, {&left, &right});
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
    ExpressionPtr joined = make_expression(line, Binary{}, {&left, &right});
    joined->node = Binary{BinaryOperator::kPower, std::move(left), std::move(right)};
    left = std::move(joined);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool allow_filters) {
  const DepthGuard guard(&depth_, tokens_.line());
  const int line = tokens_.line();
  ExpressionPtr expression;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const UnaryOperator op =
        tokens_.take().text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    ExpressionPtr operand = parse_unary(false);
    expression = make_expression(line, Unary{}, {&operand});
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
      if (text == "true" || text == "True")
        return make_expression(line, Literal{Value::boolean(true)});
      if (text == "false" || text == "False")
        return make_expression(line, Literal{Value::boolean(false)});
      if (text == "none" || text == "None") return make_expression(line, Literal{Value::none()});
      if (text == "loop") ++num_loop_reads_;
      return make_expression(line, Name{std::string(text)});
    }
    case TokenType::kString:
      return parse_strings();
    case TokenType::kInteger:
      return make_expression(line, Literal{integer_literal(tokens_.take())});
    case TokenType::kFloat:
      return make_expression(line, Literal{float_literal(tokens_.take())});
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
  if (tokens_.skip_operator(")")) return make_expression(line, ListDisplay{{}, true});
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
  return make_expression(line, Literal{Value::literal(std::move(text))});
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr list = make_expression(tokens_.line(), ListDisplay{{}, false});
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
  ExpressionPtr dict = make_expression(tokens_.line(), DictDisplay{});
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

ExpressionPtr ExpressionParser::block_text(int line) {
  return make_expression(line, BlockText{});
}

}  // namespace atom::jinja
