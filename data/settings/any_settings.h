#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/settings/config.h"

namespace focus {

/// A settings struct whose type only its owner knows: what a table of kinds holds as defaults, and
/// what a config reads without knowing the kind. T has visit(), and validate() where the limits in
/// its visit do not say all. A copy is a copy of the struct.
class AnySettings {
 public:
  template <class T>
  requires(!std::is_same_v<T, AnySettings>) AnySettings(T value)
      : held_(std::make_unique<Held<T>>(std::move(value))) {}  // NOLINT
  AnySettings(const AnySettings& other) : held_(other.held_->clone()) {}
  AnySettings(AnySettings&&) = default;
  AnySettings& operator=(AnySettings other) {
    held_ = std::move(other.held_);
    return *this;
  }
  ~AnySettings() = default;

  /// Null where it holds another type.
  template <class T>
  const T* get_if() const {
    const auto* held = dynamic_cast<const Held<T>*>(held_.get());
    return held ? &held->value : nullptr;
  }
  /// Throws std::logic_error where it holds another type.
  template <class T>
  const T& as() const {
    if (const T* value = get_if<T>()) return *value;
    throw std::logic_error("settings of a different kind");
  }
  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const { held_->validate(); }
  void visit(ConfigFieldCollector& f) { held_->visit(f); }
  void visit(ConfigFieldCollector&& f) { held_->visit(f); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::unique_ptr<Base> clone() const = 0;
    virtual void validate() const = 0;
    virtual void visit(ConfigFieldCollector& f) = 0;
  };
  template <class T>
  struct Held final : Base {
    explicit Held(T v) : value(std::move(v)) {}
    std::unique_ptr<Base> clone() const override { return std::make_unique<Held>(value); }
    void validate() const override {
      if constexpr (requires { value.validate(); }) value.validate();
    }
    void visit(ConfigFieldCollector& f) override { value.visit(f); }
    T value;
  };

  std::unique_ptr<Base> held_;
};

/// The settings of one kind of a table: a config has them as a section under the kind's name.
struct SettingsSection {
  std::string name, help;
  AnySettings settings;
};

}  // namespace focus
