#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/ast.h"

namespace focus::jinja {

/// The names that a loop, macro or block binds. Lives as long as that runs.
struct Scope {
  Names names;
  Scope* parent = nullptr;
  std::uint64_t number = 0;
};

/// A for loop's `loop`.
struct LoopState {
  std::vector<Value> items;
  std::int64_t index = 0;
  std::optional<std::vector<Value>> last_changed;  // what loop.changed() was last called with
};

/// Executes one template once.
class Interpreter {
 public:
  /// `variables` is a mapping. `now`: what strftime_now() formats.
  Interpreter(const Limits& limits, const nlohmann::ordered_json& variables, std::tm now);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render(const Block& block);
  /// The line that was reached, for errors.
  int line() const { return line_; }

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  Namespace* make_space();
  /// obj.name and obj[key], as Jinja's sandbox looks them up; undefined where there is nothing.
  Value attribute(const Value& object, const Value& name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& function, const Arguments& arguments);
  /// A filter or test by its name, as map() and select() call them.
  Value call_filter(const std::string& name, const Value& input, const Arguments& arguments);
  bool call_test(const std::string& name, const Value& input, const Arguments& arguments);

 private:
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };

  /// Binds a scope's names until its end. Scopes end in the reverse of the order they began in.
  class Open;
  /// One level of evaluation.
  Nesting deeper() { return {depth_, kMostEvaluationDepth, "the template calls itself"}; }

  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_branch(const Statement& statement);
  Flow run_loop(const Statement& statement);
  std::vector<Value> loop_items(const Statement& statement);
  Flow run_scope(const Statement& statement);
  Flow run_with(const Statement& statement);
  Flow run_assign_block(const Statement& statement);
  Flow run_filter_block(const Statement& statement);
  void run_call_block(const Statement& statement);
  Value captured(const Block& block, Flow& flow);
  Value macro_of(const Statement& statement);
  Value call_macro(const Function& macro, const Arguments& arguments);
  void bind_parameters(const Statement& macro, const Arguments& arguments);
  void assign(const Expression& target, const Value& value);
  void set(std::string_view name, Value value);
  const Value* lookup(std::string_view name) const;
  void put(std::string_view text);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_container(const Expression& expression);
  Value evaluate_slice(const Value& object, const Expression& slice);
  Value evaluate_item(const Expression& expression);
  Value evaluate_filter(const Expression& expression, const Value* input = nullptr);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_logic(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Arguments arguments_of(const Expression& expression, std::size_t first);

  Budget budget_;
  std::tm now_;
  Value variables_;
  Scope root_;
  Scope* scope_ = &root_;
  std::uint64_t scopes_made_ = 0;
  std::vector<const Scope*> open_;  // scopes, outermost first
  std::deque<Namespace> spaces_;
  std::deque<LoopState> loops_;
  std::string output_;
  std::string* out_ = &output_;
  int depth_ = 0, line_ = 1;
};

/// Python's operators. `op` is one of Op's.
Value arithmetic(Budget& budget, Op op, const Value& a, const Value& b);
Value negated(const Value& value, bool negative);
bool compared(Budget& budget, Comparison comparison, const Value& a, const Value& b);
/// Python's slice of a text, list, tuple or range; empty optionals are None.
Value sliced(Budget& budget, const Value& object, std::optional<std::int64_t> start,
             std::optional<std::int64_t> stop, std::optional<std::int64_t> step);
/// Python's `format % values`: %s %r %d %i %u %f %e %g %x %X %o %c %%, with flags, width and
/// precision. `values` is a tuple, a mapping for %(name)s, or one value.
Value percent_format(Budget& budget, const std::string& format, const Value& values);
/// str.format() of {} {0} {name}, without attributes and format specifications.
Value brace_format(Budget& budget, const std::string& format, const Arguments& arguments);
/// loop.index and the like; undefined for an unknown name.
Value loop_attribute(const LoopState& loop, std::string_view name);

}  // namespace focus::jinja
