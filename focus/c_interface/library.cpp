#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "autograd/simd/kernels.h"
#include "data/tensors/store.h"
#include "focus/c_interface/interface.h"
#include "focus/training/run_config.h"
#include "focus/version.h"

namespace focus::c_interface {
namespace {

std::atomic<int> wanted_threads{0};
thread_local std::string last_error;

/// Hands lines of the log to a callback.
class CallbackSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  CallbackSink(focus_callback callback, void* user) : callback_(callback), user_(user) {}

 private:
  void sink_it_(const spdlog::details::log_msg& line) override {
    callback_(std::string(line.payload.data(), line.payload.size()).c_str(), user_);
  }
  void flush_() override {}

  focus_callback callback_;
  void* user_;
};

/// Standard output is the caller's.
void log_to(spdlog::sink_ptr sink) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("focus", std::move(sink)));
  spdlog::set_pattern("%v");
}

bool prepare() {
  prepare_stores();
  log_to(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  return true;
}

/// The array of a value that is no text.
focus_array array_of(const Value& value) {
  focus_array array = {};
  array.rank = 1;
  if (const auto* const tensor = std::get_if<Tensor>(&value)) {
    array.data = tensor->data();
    array.rank = tensor->rank();
    for (int i = 0; i < array.rank; ++i) array.shape[i] = tensor->dim(i);
    array.dtype = sizeof(Real) == sizeof(double) ? FOCUS_FLOAT64 : FOCUS_FLOAT32;
  } else if (const auto* const ids = std::get_if<std::vector<std::int32_t>>(&value)) {
    array.data = ids->data();
    array.shape[0] = std::ssize(*ids);
    array.dtype = FOCUS_INT32;
  } else if (const auto* const numbers = std::get_if<std::vector<double>>(&value)) {
    array.data = numbers->data();
    array.shape[0] = std::ssize(*numbers);
    array.dtype = FOCUS_FLOAT64;
  } else {
    fail("value: it is a text, not an array");
  }
  return array;
}

}  // namespace

Handles<OpenModel>& models() {
  static Handles<OpenModel> all("model");
  return all;
}

Handles<Value>& values() {
  static Handles<Value> all("value");
  return all;
}

void begin_call() {
  static const int all = omp_get_max_threads();
  [[maybe_unused]] static const bool prepared = prepare();
  const int wanted = wanted_threads;
  omp_set_num_threads(wanted > 0 ? wanted : all);
}

focus_status end_call(focus_status status, const std::string& message) {
  last_error = message;
  return status;
}

void require(const void* argument, const char* name) {
  if (argument == nullptr) fail("{}: expected a value, got NULL", name);
}

std::vector<std::int32_t> ids_of(focus_ids ids) {
  if (ids.size > 0) require(ids.data, "ids");
  return {ids.data, ids.data + ids.size};
}

Texts texts_of(const focus_texts& texts) {
  Texts all;
  const auto add = [](auto& to, const char* const* from, std::size_t count) {
    if (count > 0) require(from, "texts");
    for (std::size_t i = 0; i < count; ++i) {
      require(from[i], "texts");
      to.emplace_back(from[i]);
    }
  };
  add(all.files, texts.files, texts.num_files);
  add(all.documents, texts.documents, texts.num_documents);
  if (all.files.empty() && all.documents.empty()) fail("texts: expected at least one");
  return all;
}

nlohmann::json read_object(const char* text, const std::string& name) {
  if (text == nullptr || *text == 0) return nlohmann::json::object();
  nlohmann::json json = parse_strict_json(text, name);
  if (!json.is_object()) fail("{}: expected a JSON object", name);
  return json;
}

ShareDone told(OpenModel& model, const char* work, focus_callback callback, void* user) {
  return [=, &model](double share) {
    if (model.cancelled) throw Stopped();
    if (callback == nullptr) return;
    if (callback(json_text(Json{{"work", work}, {"share", share}}).c_str(), user) != 0)
      throw Stopped();
  };
}

}  // namespace focus::c_interface

using namespace focus;               // NOLINT: what follows is C
using namespace focus::c_interface;  // NOLINT

const char* focus_version(void) { return FOCUS_VERSION; }

const char* focus_error(void) { return last_error.c_str(); }

focus_status focus_set_threads(int32_t threads) {
  return call([&] {
    if (threads < 0 || threads > kMostThreads)
      fail("threads: expected 0 to {}, got {}", kMostThreads, threads);
    wanted_threads = threads;
  });
}

focus_status focus_set_notices(focus_callback notices, void* user) {
  return call([&] {
    if (notices == nullptr)
      log_to(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    else
      log_to(std::make_shared<CallbackSink>(notices, user));
  });
}

focus_status focus_machine(focus_value** json) {
  return call([&] {
    give(json, [] {
      const PoolStats pool = pool_stats();
      return Json{{"version", FOCUS_VERSION},
                  {"kernels", simd::kernels().name},
                  {"threads", omp_get_max_threads()},
                  {"tensor_bytes", pool.live},
                  {"reserved_bytes", pool.reserved}};
    });
  });
}

focus_status focus_value_text(const focus_value* value, const char** text, size_t* bytes) {
  return call([&] {
    require(text, "text");
    require(bytes, "bytes");
    const std::shared_ptr<Value> held = values().find(value);
    const auto* const found = std::get_if<std::string>(held.get());
    if (found == nullptr) fail("value: it is an array, not a text");
    *text = found->c_str();
    *bytes = found->size();
  });
}

focus_status focus_value_array(const focus_value* value, focus_array* array) {
  return call([&] {
    require(array, "array");
    *array = array_of(*values().find(value));
  });
}

focus_status focus_value_free(focus_value* value) {
  return call([&] { values().find(value, true); });
}
