#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/function.h"

namespace focus::jinja {

struct CallParts;

/// An expression that has been read: gives its value in a rendering.
struct Expression {
  std::function<Value(Interpreter&)> give;
  int depth = 1;                                    // levels of expressions in it
  std::shared_ptr<const CallParts> call = nullptr;  // of a call: what it is made of
  Value operator()(Interpreter& in) const { return give(in); }
};

/// What is called, the arguments without a name, and those that have these names.
struct CallParts {
  std::vector<Expression> parts;
  std::vector<std::string> names;
};

enum class Flow : std::uint8_t { next, break_loop, continue_loop };

struct Statement {
  int line = 0;
  std::function<Flow(Interpreter&)> run;
};
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  Expression otherwise;  // the default; may have no `give`
};

/// A macro, or the body of a call block. `uses_...`: whether its body reads the names that take
/// what its parameters leave over, and the body of a call block.
struct Macro {
  std::string name;
  std::vector<Parameter> parameters = {};
  Block body = {};
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

/// The statements of a normalised template. Refuses what Jinja does not know and what this program
/// leaves out, by name. `line` is the line that has been reached.
Block parse_template(std::string_view source, int& line);

/// The names that a loop, macro or block binds. Lives as long as that runs.
struct Scope {
  std::shared_ptr<Scope> parent;
  Names names;
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
  /// `variables` is a mapping. `now_`: what strftime_now() formats.
  Interpreter(const Limits& limits, const nlohmann::ordered_json& variables, std::tm now_)
      : budget(limits), now(now_), variables_(Value::from_json(budget, variables)) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Budget budget;
  const std::tm now;
  int line = 1;         // that was reached, for errors
  std::string output;   // of the template, or of the block that is captured
  Value captured_text;  // of the block that a filter reads
  std::deque<LoopState> loops;

  /// One level of evaluation.
  Nesting deeper() { return {depth_, kMostEvaluationDepth, "the template calls itself"}; }
  Flow run(const Block& block);
  /// What a block writes.
  Value captured(const Block& block, Flow& flow);
  void put(const Value& value);

  Value name(const std::string& name);
  void set(std::string_view name, Value value) { scope_->names.set(name, std::move(value)); }
  /// `set ns.member = value`.
  void set_member_of(const std::string& space, const std::string& member, const Value& value);
  Namespace* make_space();
  /// obj.name and obj[key], as Jinja's sandbox looks them up; undefined where there is nothing.
  Value attribute(const Value& object, const Value& name);
  Value item(const Value& object, const Value& key);

  Value macro(const Macro& macro);
  Value call(const Value& function, const Arguments& arguments);
  /// A filter or test by its name, as map() and select() call them.
  Value call_filter(const std::string& name, const Value& input, const Arguments& arguments);
  bool call_test(const std::string& name, const Value& input, const Arguments& arguments);

  /// Binds a scope's names until its end.
  class Open {
   public:
    explicit Open(Interpreter& in) : Open(in, in.scope_) {}
    Open(Interpreter& in, std::shared_ptr<Scope> parent)
        : in_(in),
          before_(std::exchange(in.scope_, std::make_shared<Scope>(Scope{std::move(parent), {}}))) {
    }
    ~Open() { in_.scope_ = std::move(before_); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Interpreter& in_;
    std::shared_ptr<Scope> before_;
  };

 private:
  const Value* lookup(std::string_view name) const;
  Value call_macro(const Function& function, const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments);

  Value variables_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::deque<Namespace> spaces_;
  int depth_ = 0;
};

}  // namespace focus::jinja
