#pragma once

#include <omp.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "autograd/base/check.h"
#include "autograd/tensor.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"
#include "data/text/text.h"
#include "focus/focus.h"
#include "focus/training/tasks.h"

// What the functions of focus/focus.h share.
namespace focus::c_interface {

using Json = nlohmann::ordered_json;

/// A callback or focus_model_cancel() has ended the work.
struct Stopped {};

/// The thing behind a focus_model.
struct OpenModel {
  LoadedModel model;
  OpenOptions options;    // without adapters: how to open it again
  std::string attention;  // a spec that resolves; empty: the model's own
  std::mutex mutex;       // of all but what follows
  std::atomic<bool> cancelled = false;
  std::atomic<std::thread::id> runs_in = {};  // the thread that has the mutex

  /// Once no other call runs on it. Throws std::runtime_error in a callback of its own.
  std::unique_lock<std::mutex> wait() {
    if (runs_in.load() == std::this_thread::get_id())
      fail("model: its own callback cannot call it; a call runs on it in this thread");
    return std::unique_lock(mutex);
  }

  AttentionSpec spec() const {
    return attention.empty() ? own_attention(model)
                             : resolve_attention(parse_attention(attention), model, "attention");
  }
};

/// The thing behind a focus_value.
using Value = std::variant<std::string, Tensor, std::vector<std::int32_t>, std::vector<double>>;

/// Things by handles that are numbers: one that was closed is found out and not followed. No number
/// is given twice, to things of any kind.
template <class T>
class Handles {
 public:
  explicit Handles(std::string what) : what_(std::move(what)) {}
  void* add(std::shared_ptr<T> thing) {
    static std::atomic<std::uintptr_t> next{16};
    const std::uintptr_t handle = next.fetch_add(16);
    const std::lock_guard lock(mutex_);
    things_.emplace(handle, std::move(thing));
    return reinterpret_cast<void*>(handle);
  }
  /// `take`: later calls no longer find it. Throws std::runtime_error for an unknown one.
  std::shared_ptr<T> find(const void* handle, bool take = false) {
    const std::lock_guard lock(mutex_);
    const auto found = things_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == things_.end())
      fail("{}: {}", what_, handle == nullptr ? "NULL is none" : "it was closed, or is none");
    return take ? things_.extract(found).mapped() : found->second;
  }

 private:
  const std::string what_;
  std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<T>> things_;
};

Handles<OpenModel>& models();
Handles<Value>& values();

/// Before and behind each call: the threads it may take, and what focus_error() says of it.
void begin_call();
focus_status end_call(focus_status status, const std::string& message);

/// Runs f as the body of a function of the interface.
template <class F>
focus_status call(F&& f) {
  try {
    begin_call();
    f();
    return FOCUS_OK;
  } catch (const Stopped&) {
    return end_call(FOCUS_STOPPED, "stopped by the caller");
  } catch (const std::bad_alloc&) {
    return end_call(FOCUS_FAILED, "out of memory: a smaller batch or context needs less");
  } catch (const std::filesystem::filesystem_error& error) {
    return end_call(FOCUS_FAILED,
                    error.path1().string() + ": " + std::string(error.code().message()));
  } catch (const std::exception& error) {
    return end_call(FOCUS_FAILED, error.what());
  } catch (...) {
    return end_call(FOCUS_FAILED, "an unknown error");
  }
}

/// The same on a model, once no other call runs on it, without a graph.
template <class F>
focus_status call_on(focus_model* handle, F&& f) {
  return call([&] {
    const std::shared_ptr<OpenModel> model = models().find(handle);
    const std::unique_lock lock = model->wait();
    model->cancelled = false;
    model->runs_in = std::this_thread::get_id();
    const auto end = [&](void*) { model->runs_in = std::thread::id(); };
    const std::unique_ptr<void, decltype(end)> at_end(model.get(), end);
    const NoGrad guard;
    f(*model);
  });
}

/// Throws where an argument that must be there is NULL.
void require(const void* argument, const char* name);
/// Empty for NULL.
inline std::string text_of(const char* text) { return text == nullptr ? "" : text; }
std::vector<std::int32_t> ids_of(focus_ids ids);
Texts texts_of(const focus_texts& texts);

/// An object; an empty one for NULL.
nlohmann::json read_object(const char* text, const std::string& name);
/// Reads it into settings, as a config; errors begin with `name`.
template <class T>
void read_settings(const char* text, const std::string& name, T& settings) {
  if (const nlohmann::json json = read_object(text, name); !json.empty())
    read_config_text(json.dump(), name, {}, settings);
}

/// Writes what f returns, a Json as its text, through `out` as a new value.
template <class F>
void give(focus_value** out, F&& f) {
  require(out, "result");  // before the work
  const auto add = [&](Value value) {
    *out = static_cast<focus_value*>(values().add(std::make_shared<Value>(std::move(value))));
  };
  if constexpr (std::is_same_v<decltype(f()), Json>)
    add(json_text(f()));
  else
    add(f());
}
/// The same as the body of a function on a model: f(OpenModel&).
template <class F>
focus_status make_on(focus_model* handle, focus_value** out, F&& f) {
  return call_on(handle, [&](OpenModel& open) { give(out, [&] { return f(open); }); });
}

/// Tells a callback of a share of the work, and ends it where that, or another thread, wants so.
ShareDone told(OpenModel& model, const char* work, focus_callback callback, void* user);

}  // namespace focus::c_interface
